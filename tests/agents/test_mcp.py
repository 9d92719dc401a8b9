"""An MCP server of the Python SDK, and its clients: one effect for each key, and one answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest
from in_a_loop import run
from mcp import Client
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    AudioContent,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

from onceward import Found
from onceward.agents import AgentGate, Tool, tool
from onceward.agents.mcp import IDENTIFIER, KeyedClient, OncewardExtension, was_replayed
from onceward.agents.mcp_fields import CODE, KEY
from onceward.errors import ConfigurationError

FORTY_TWO: dict[str, Any] = {"order_id": "42"}


class Shop:
    """A server with a tool that counts its effects."""

    def __init__(self, gate: AgentGate, *, attached: bool = True, gated: bool = True, **options: Any) -> None:
        self.gate = gate
        self.effects: list[str] = []
        self.once = OncewardExtension(gate, **options)
        self.server = MCPServer("shop", extensions=[self.once] if gated else [])
        if attached and gated:
            self.once.attach(self.server)
        self.server.tool()(self.charge)

    async def charge(self, order_id: str, amount: int = 1) -> dict[str, Any]:
        """Charge an order."""
        self.effects.append(order_id)
        return {"charged": order_id, "number": len(self.effects)}

    def client(self, **options: Any) -> Client:
        """A client of it, in this process."""
        return Client(self.server, **options)


def key(name: str) -> Any:
    """What a client sends along."""
    return {KEY: name}


@pytest.fixture
def open_gate(tmp_path: Path) -> Callable[..., AgentGate]:
    """Opens gates on one file: each stands for a process of its own."""

    def opens(**tools: Tool) -> AgentGate:
        return AgentGate(f"sqlite:///{tmp_path}/mcp.db", scope="test:mcp", tools=tools, wait=5)

    return opens


def text_of(result: CallToolResult) -> str:
    """What the model reads."""
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@pytest.fixture(params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    """The protocol without sessions, and the one with them."""
    return str(request.param)


class TestKeys:
    @pytest.mark.fault("mcp-the-key-is-not-read")
    def test_a_call_repeated_under_its_key_has_one_effect(self, open_gate: Any, mode: str) -> None:
        """The second answer is the first one, and says so."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client(mode=mode) as client:
                    first = await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    second = await client.call_tool("charge", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == ["42"]
                    assert second.content == first.content
                    assert second.structured_content == {"charged": "42", "number": 1}
                    assert (was_replayed(first), was_replayed(second)) == (False, True)

        run(work())

    def test_without_the_gate_the_same_call_has_two_effects(self, open_gate: Any, mode: str) -> None:
        """The negative control."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, gated=False)
                async with shop.client(mode=mode) as client:
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == ["42", "42"]

        run(work())

    def test_another_key_is_another_call(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    await client.call_tool("charge", FORTY_TWO, meta=key("k2"))

                    assert shop.effects == ["42", "42"]

        run(work())

    def test_calls_at_the_same_time_under_one_key_have_one_effect(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    answers = await asyncio.gather(
                        *(client.call_tool("charge", FORTY_TWO, meta=key("k1")) for _ in range(8))
                    )

                    assert shop.effects == ["42"]
                    assert {json.dumps(one.structured_content) for one in answers} == {'{"charged": "42", "number": 1}'}
                    assert [was_replayed(one) for one in answers].count(False) == 1

        run(work())

    def test_a_key_used_for_other_arguments_is_refused_in_words(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    refused = await client.call_tool("charge", {"order_id": "43"}, meta=key("k1"))

                    assert shop.effects == ["42"]
                    assert refused.is_error
                    assert (refused.meta or {})[CODE] == "key_reused"

        run(work())

    @pytest.mark.fault("agents-a-key-is-of-any-tool")
    def test_a_key_used_for_another_tool_is_refused(self, open_gate: Any) -> None:
        """Equal arguments under an equal key: the mail must not be answered with the charge."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                shop.server.tool()(another_tool("mail", shop))
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO, meta=key("order-42"))
                    refused = await client.call_tool("mail", FORTY_TWO, meta=key("order-42"))

                    assert shop.effects == ["42"]
                    assert (refused.meta or {}).get(CODE) == "key_reused"

        run(work())

    def test_a_call_without_key_and_run_is_made_as_it_is(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO)
                    await client.call_tool("charge", FORTY_TWO)

                    assert shop.effects == ["42", "42"]

        run(work())

    @pytest.mark.requirement("B04")
    @pytest.mark.fault("mcp-keys-are-not-demanded")
    def test_a_tool_with_an_effect_called_without_a_key_raises_before_it_runs(self, open_gate: Any) -> None:
        """Where keys are demanded, a call without one is an error of the client's programmer."""

        async def work() -> None:
            async with open_gate(look=Tool("read-only")) as gate:
                shop = Shop(gate, require_key=True)
                shop.server.tool()(another_tool("look", shop))
                async with shop.client() as client:
                    with pytest.raises(MCPError, match="has an effect and no key") as refused:
                        await client.call_tool("charge", FORTY_TWO)

                    assert shop.effects == []
                    assert (refused.value.code, refused.value.data) == (INVALID_PARAMS, {CODE: "key_missing"})
                    await client.call_tool("look", FORTY_TWO)
                    assert shop.effects == ["42"]

        run(work())

    @pytest.mark.parametrize("wrong", ["", 7, ["k"], "k" * 300])
    def test_a_key_that_is_none_is_refused(self, open_gate: Any, wrong: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    with pytest.raises(MCPError):
                        await client.call_tool("charge", FORTY_TWO, meta=key(wrong))

                    assert shop.effects == []

        run(work())

    def test_a_business_key_needs_nothing_from_the_client(self, open_gate: Any) -> None:
        """It wins over the keys that clients send, too."""

        async def work() -> None:
            async with open_gate(charge=Tool("blind", key="charge:{order_id}")) as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO)
                    await client.call_tool("charge", FORTY_TWO)
                    await client.call_tool("charge", FORTY_TWO, meta=key("another"))

                    assert shop.effects == ["42"]

        run(work())


def another_tool(name: str, shop: Shop) -> Callable[..., Any]:
    """Another tool with the same arguments, and answers of the same shape."""

    async def made(order_id: str) -> dict[str, Any]:
        shop.effects.append(order_id)
        return {name: order_id}

    made.__name__ = name
    return made


class TestResults:
    def test_content_of_every_kind_survives_byte_for_byte(self, open_gate: Any, mode: str) -> None:
        everything = CallToolResult(
            content=[
                TextContent(text="größe \u2028 \x00 done", _meta={"a": 1}),
                ImageContent(data="iVBORw0KGgo=", mime_type="image/png"),
                AudioContent(data="UklGRg==", mime_type="audio/wav"),
                EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", text="a\r\nb", mime_type="text/x")),
                ResourceLink(name="link", uri="https://example.com/x", size=3),
            ],
            structured_content={"none": None, "float": 1.0, "int": 1, "big": 2**60, "list": [None, 0.1, "é"]},
            _meta={"vendor/x": {"deep": [1, None]}},
        )

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def picture(order_id: str) -> CallToolResult:
                    shop.effects.append(order_id)
                    return everything

                async with shop.client(mode=mode) as client:
                    plain = await client.call_tool("picture", FORTY_TWO)
                    first = await client.call_tool("picture", FORTY_TWO, meta=key("k1"))
                    second = await client.call_tool("picture", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == ["42", "42"]
                    assert first.model_dump_json() == plain.model_dump_json()
                    assert was_replayed(second)
                    assert dict(second.meta or {}).pop("dev.onceward/replayed") is True
                    without = second.model_copy(update={"meta": first.meta})
                    assert without.model_dump_json() == first.model_dump_json()
                    assert set(second.meta or {}) - set(first.meta or {}) == {"dev.onceward/replayed"}

        run(work())

    @pytest.mark.fault("mcp-errors-are-kept-as-answers")
    def test_an_error_that_the_tool_tells_is_no_answer_to_keep(self, open_gate: Any) -> None:
        """A deliberate `ToolError`: nothing happened, and the same key may be used again."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                funds: list[int] = []

                @shop.server.tool()
                async def pay(order_id: str) -> str:
                    if not funds:
                        raise ToolError("no funds yet")
                    shop.effects.append(order_id)
                    return "paid"

                async with shop.client() as client:
                    refused = await client.call_tool("pay", FORTY_TWO, meta=key("k1"))
                    funds.append(100)
                    paid = await client.call_tool("pay", FORTY_TWO, meta=key("k1"))

                    assert refused.is_error
                    assert text_of(refused) == "Error executing tool pay: no funds yet"
                    assert (text_of(paid), shop.effects) == ("paid", ["42"])

        run(work())

    @pytest.mark.parametrize("nested", [False, True])
    @pytest.mark.fault("mcp-a-crash-is-taken-for-an-answer")
    def test_a_tool_that_crashed_is_in_doubt(self, open_gate: Any, nested: bool) -> None:
        """The SDK makes a result of the exception; nobody knows whether it happened, and the model is told so."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def broken(order_id: str) -> str:
                    shop.effects.append(order_id)
                    raise ConnectionResetError("no answer came")

                @shop.server.tool()
                async def outer(order_id: str, ctx: Context) -> str:
                    await shop.server.call_tool("broken", {"order_id": order_id}, ctx)
                    return "unreachable"

                name = "outer" if nested else "broken"
                async with shop.client() as client:
                    first = await client.call_tool(name, FORTY_TWO, meta=key("k1"))
                    second = await client.call_tool(name, FORTY_TWO, meta=key("k1"))

                    assert shop.effects == ["42"]
                    assert first.is_error
                    assert (first.meta or {})[CODE] == "tool_failed"
                    assert "but may have happened" in text_of(first)
                    assert (second.meta or {})[CODE] == "in_doubt"
                    assert "may already have happened" in text_of(second)
                    assert "try again" not in text_of(first) + text_of(second)

        run(work())

    def test_a_protocol_error_of_the_tool_is_in_doubt_unless_it_says_that_nothing_happened(
        self, open_gate: Any
    ) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def fails(order_id: str, code: int) -> str:
                    shop.effects.append(order_id)
                    raise MCPError(code=code, message="the upstream said so")

                async with shop.client() as client:
                    before = {"order_id": "1", "code": INVALID_PARAMS}
                    for _ in range(2):
                        with pytest.raises(MCPError, match="upstream"):
                            await client.call_tool("fails", before, meta=key("k1"))
                    unknown = {"order_id": "2", "code": -32603}
                    told = [await client.call_tool("fails", unknown, meta=key("k2")) for _ in range(2)]

                    assert shop.effects == ["1", "1", "2"]
                    assert [(one.meta or {})[CODE] for one in told] == ["tool_failed", "in_doubt"]

        run(work())

    @pytest.mark.fault("mcp-invalid-arguments-are-claimed")
    def test_invalid_arguments_are_never_claimed(self, open_gate: Any) -> None:
        """A model that corrects its arguments makes the same call: the business key is still free."""

        async def work() -> None:
            async with open_gate(charge=Tool("blind", key="charge:{order_id}")) as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    wrong = await client.call_tool("charge", {"order_id": "42", "amount": "many"})
                    right = await client.call_tool("charge", {"order_id": "42", "amount": 3})

                    assert wrong.is_error
                    assert "amount" in text_of(wrong)
                    assert (right.is_error, shop.effects) == (False, ["42"])

        run(work())

    def test_what_a_probe_finds_is_the_answer(self, open_gate: Any) -> None:
        async def work() -> None:
            found = Tool("probed", probe=lambda call: Found({"charged": call.arguments["order_id"]}))
            async with open_gate(broken=found) as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def broken(order_id: str) -> dict[str, Any]:
                    shop.effects.append(order_id)
                    raise ConnectionResetError("no answer came")

                async with shop.client() as client:
                    await client.call_tool("broken", FORTY_TWO, meta=key("k1"))
                    second = await client.call_tool("broken", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == ["42"]
                    assert second.structured_content == {"charged": "42"}

        run(work())

    @pytest.mark.fault("mcp-a-question-is-kept-as-the-answer")
    def test_a_call_that_asks_first_is_kept_when_it_has_been_answered(self, open_gate: Any) -> None:
        """A question is a result, and not the last one: the continuation has the effect, and a repetition finds it."""
        asked: list[str] = []

        async def answers(context: Any, params: Any) -> ElicitResult:
            asked.append(params.message)
            return ElicitResult(action="accept", content={"yes": True})

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def confirm(order_id: str, ctx: Context) -> str | InputRequiredResult:
                    if not ctx.input_responses:
                        form = ElicitRequestFormParams(
                            message="sure?", requested_schema={"type": "object", "properties": {}}
                        )
                        return InputRequiredResult(input_requests={"sure": ElicitRequest(params=form)})
                    shop.effects.append(order_id)
                    return "done"

                async with shop.client(elicitation_callback=answers) as client:
                    first = await client.call_tool("confirm", FORTY_TWO, meta=key("k1"))
                    second = await client.call_tool("confirm", FORTY_TWO, meta=key("k1"))

                    assert (text_of(first), text_of(second)) == ("done", "done")
                    assert (asked, shop.effects) == (["sure?"], ["42"])
                    assert was_replayed(second)

        run(work())


async def timing_out(call: Coroutine[Any, Any, Any], begun: asyncio.Event) -> None:
    """A caller whose time is up as soon as the tool has begun."""
    with anyio.fail_after(3_600) as scope:

        async def end() -> None:
            await begun.wait()
            scope.deadline = anyio.current_time()

        ending = asyncio.ensure_future(end())
        await call
        ending.cancel()


class TestTimeOuts:
    @pytest.mark.fault("agents-no-shield")
    def test_a_client_that_gave_up_is_given_the_first_answer(self, open_gate: Any, mode: str) -> None:
        """The server goes on with the call, reports progress to nobody, and the retry finds the answer."""
        heard: list[float] = []

        async def progress(at: float, total: float | None, message: str | None) -> None:
            heard.append(at)

        async def work() -> None:
            begun, go_on = asyncio.Event(), asyncio.Event()
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def slow(order_id: str, ctx: Context) -> str:
                    await ctx.report_progress(1)
                    begun.set()
                    await go_on.wait()
                    shop.effects.append(order_id)
                    await ctx.report_progress(2)
                    return "done"

                async with shop.client(mode=mode) as client:
                    with pytest.raises(TimeoutError):
                        await timing_out(
                            client.call_tool("slow", FORTY_TWO, progress_callback=progress, meta=key("k1")), begun
                        )
                    again = asyncio.ensure_future(client.call_tool("slow", FORTY_TWO, meta=key("k1")))
                    await asyncio.sleep(0)
                    go_on.set()
                    answer = await again

                    assert shop.effects == ["42"]
                    assert (text_of(answer), was_replayed(answer)) == ("done", True)
                    assert heard[0] == 1

        run(work())

    def test_progress_reaches_the_client(self, open_gate: Any, mode: str) -> None:
        heard: list[float] = []

        async def progress(at: float, total: float | None, message: str | None) -> None:
            heard.append(at)

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)

                @shop.server.tool()
                async def steps(ctx: Context) -> str:
                    for number in (1, 2, 3):
                        await ctx.report_progress(number, 3)
                    return "done"

                async with shop.client(mode=mode) as client:
                    await client.call_tool("steps", {}, progress_callback=progress, meta=key("k1"))
                    await client.list_tools()  # What was sent before its answer has arrived.

                    assert heard == [1, 2, 3]

        run(work())


class TestTools:
    def test_decorators_say_what_a_tool_is_and_annotations_only_if_they_are_trusted(self, open_gate: Any) -> None:
        async def work(trusting: bool) -> list[int]:
            async with open_gate() as gate:
                shop = Shop(gate, trust_annotations=trusting, require_key=True)
                ran: list[str] = []

                @shop.server.tool()
                @tool("read-only")
                def declared() -> str:
                    ran.append("declared")
                    return "x"

                @shop.server.tool(annotations=ToolAnnotations(read_only_hint=True))
                def annotated() -> str:
                    ran.append("annotated")
                    return "x"

                async with shop.client() as client:
                    for name in ("declared", "annotated"):
                        try:
                            await client.call_tool(name, {})
                        except MCPError:
                            ran.append(f"{name} refused")
                return [ran == ["declared", "annotated"], ran == ["declared", "annotated refused"]]

        assert run(work(True)) == [True, False]
        assert run(work(False)) == [False, True]

    def test_without_the_tools_annotations_cannot_be_trusted(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, attached=False, trust_annotations=True)
                async with shop.client() as client:
                    with pytest.raises(MCPError):
                        await client.call_tool("charge", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == []

        run(work())

    def test_the_tools_of_another_server_are_not_attached(self, open_gate: Any) -> None:
        with pytest.raises(ConfigurationError, match="extensions="):
            OncewardExtension(open_gate()).attach(MCPServer("other"))

    def test_an_extension_that_knows_no_tools_gates_them_all_the_same(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, attached=False)
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    await client.call_tool("charge", FORTY_TWO, meta=key("k1"))
                    missing = await client.call_tool("nothing", FORTY_TWO, meta=key("k2"))

                    assert shop.effects == ["42"]
                    assert text_of(missing) == "Unknown tool: nothing"

        run(work())

    def test_a_tool_in_a_thread_has_its_operation(self, open_gate: Any) -> None:
        """A keyed tool sends the same downstream key whenever it runs."""
        from onceward import current_operation

        seen: list[tuple[str, bool]] = []

        def keyed(order_id: str) -> str:
            operation = current_operation()
            assert operation is not None
            in_main = threading.current_thread() is threading.main_thread()
            seen.append((operation.downstream_key("uuid"), in_main))
            raise ConnectionResetError

        async def work() -> None:
            async with open_gate(keyed=Tool("keyed")) as gate:
                shop = Shop(gate)
                shop.server.tool()(keyed)
                async with shop.client() as client:
                    await client.call_tool("keyed", FORTY_TWO, meta=key("k1"))
                    await client.call_tool("keyed", FORTY_TWO, meta=key("k1"))

            assert len(seen) == 2
            assert len({sent for sent, _ in seen}) == 1
            assert not seen[0][1]

        run(work())


class TestRuns:
    def test_equal_calls_of_a_run_are_numbered_and_a_restart_finds_what_was_not_delivered(self, open_gate: Any) -> None:
        """For clients that send no keys: the same call wanted twice is two, and a repeated one is one."""

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, run="order-42")
                async with shop.client() as client:
                    await client.call_tool("charge", FORTY_TWO)
                    await client.call_tool("charge", FORTY_TWO)
                    assert shop.effects == ["42", "42"]
            async with open_gate() as gate:  # The second answer was on its way when the process ended.
                after = Shop(gate, run="order-42")
                async with after.client() as client:
                    again = await client.call_tool("charge", FORTY_TWO)
                    assert (after.effects, was_replayed(again)) == ([], True)
                    await after.once.delivered()
            async with open_gate() as gate:
                wanted = Shop(gate, run=lambda ctx: "order-42")
                async with wanted.client() as client:
                    await client.call_tool("charge", FORTY_TWO)
                    assert wanted.effects == ["42"]

        run(work())

    @pytest.mark.fault("agents-two-tasks-take-one-mark")
    def test_tasks_that_mark_at_once_do_not_trip_over_each_other(self, open_gate: Any) -> None:
        """A server serves several calls of a run at once, and each notes what was delivered before."""

        async def work() -> None:
            async with open_gate() as gate:
                numbered = gate.run("order-42")
                for name in ("charge", "mail"):
                    await numbered.acall(name, FORTY_TWO, lambda: "done")
                came_to = await asyncio.gather(numbered.adelivered(), numbered.adelivered(), return_exceptions=True)

                assert came_to == [None, None]
                marked = [await gate.adelivered_before("order-42", name, FORTY_TWO) for name in ("charge", "mail")]
                assert marked == [1, 1]

        run(work())

    def test_a_run_may_be_none_for_some_calls(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, run=lambda ctx: None, require_key=True)
                async with shop.client() as client:
                    with pytest.raises(MCPError, match="and no key"):
                        await client.call_tool("charge", FORTY_TWO)

                    assert shop.effects == []

        run(work())


def authenticated(client_id: str, subject: str | None = None) -> Any:
    """As the SDK's bearer middleware leaves a request."""
    token = AccessToken(token="t", client_id=client_id, scopes=[], subject=subject)
    return auth_context_var.set(AuthenticatedUser(token))


class TestTenants:
    @pytest.mark.fault("mcp-keys-cross-clients")
    def test_the_key_of_one_client_never_finds_the_answer_of_another(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client() as client:
                    answers = []
                    for client_id, subject in (("a", None), ("b", None), ("a", "anna"), ("a", "otto"), ("a", None)):
                        token = authenticated(client_id, subject)
                        answers.append(await client.call_tool("charge", FORTY_TWO, meta=key("k1")))
                        auth_context_var.reset(token)

                    assert len(shop.effects) == 4
                    assert [was_replayed(one) for one in answers] == [False, False, False, False, True]

        run(work())

    @pytest.mark.fault("mcp-tenants-share-a-scope")
    def test_scope_of_separates_tenants_and_their_business_keys(self, open_gate: Any) -> None:
        """And joins the clients of one tenant: a colleague's repetition finds the answer."""

        async def work() -> None:
            tenant = ["acme"]
            async with open_gate(charge=Tool("blind", key="charge:{order_id}")) as gate:
                shop = Shop(gate, scope_of=lambda ctx: f"live:{tenant[0]}")
                async with shop.client() as client:
                    token = authenticated("a")
                    await client.call_tool("charge", FORTY_TWO)
                    auth_context_var.reset(token)
                    await client.call_tool("charge", FORTY_TWO)
                    tenant[0] = "globex"
                    other = await client.call_tool("charge", FORTY_TWO)

                    assert len(shop.effects) == 2
                    assert not was_replayed(other)

        run(work())

    @pytest.mark.parametrize("nobody", [None, ""])
    def test_a_caller_without_a_tenant_is_refused(self, open_gate: Any, nobody: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, scope_of=lambda ctx: nobody)
                async with shop.client() as client:
                    with pytest.raises(MCPError):
                        await client.call_tool("charge", FORTY_TWO, meta=key("k1"))

                    assert shop.effects == []

        run(work())


class TestKeyedClient:
    def test_a_call_is_repeated_after_a_time_out_under_the_same_key(self, open_gate: Any, mode: str) -> None:
        """The server's answer is held back until the client has asked again: one effect, and the first answer."""

        async def work() -> None:
            asked, release = [0], asyncio.Event()

            def scope_of(ctx: Any) -> str:
                asked[0] += 1
                if asked[0] == 2:
                    release.set()
                return "test:mcp"

            async with open_gate() as gate:
                shop = Shop(gate, scope_of=scope_of)

                @shop.server.tool()
                async def slow(order_id: str) -> str:
                    shop.effects.append(order_id)
                    await release.wait()
                    return "done"

                async with shop.client(mode=mode) as client:
                    # The protocol with sessions has no place in which a server could say that it honours keys.
                    said = True if mode == "legacy" else None
                    keyed = KeyedClient(client, attempts=20, server_honours_keys=said)
                    answer = await keyed.call_tool("slow", FORTY_TWO, 0.5)

                    assert asked[0] >= 2
                    assert (text_of(answer), shop.effects) == ("done", ["42"])

        run(work())

    def test_a_server_that_does_not_honour_keys_is_not_asked_twice(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, gated=False)

                @shop.server.tool()
                async def slow(order_id: str) -> str:
                    shop.effects.append(order_id)
                    await asyncio.Event().wait()
                    return "never"

                async with shop.client() as client:
                    keyed = KeyedClient(client)
                    with pytest.raises(MCPError, match=r"(?i)timed out"):
                        await keyed.call_tool("slow", FORTY_TWO, 0.05)

                    assert not keyed.server_honours_keys
                    assert len(shop.effects) <= 1  # None if the time was up before it began.

        run(work())

    def test_keys_come_from_the_run_and_a_run_that_starts_over_sends_the_same(self, open_gate: Any, mode: str) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                async with shop.client(mode=mode) as client:
                    assert (IDENTIFIER in (client.server_capabilities.extensions or {})) is (mode == "auto")
                    keyed = KeyedClient(client, run="order-42")
                    await keyed.call_tool("charge", FORTY_TWO)
                    await keyed.call_tool("charge", FORTY_TWO)
                    assert len(shop.effects) == 2
                    over = KeyedClient(client.session, run="order-42")
                    answers = [await over.call_tool("charge", FORTY_TWO) for _ in range(3)]

                    assert [was_replayed(one) for one in answers] == [True, True, False]
                    assert len(shop.effects) == 3

        run(work())

    def test_a_call_without_an_answer_keeps_its_key(self, open_gate: Any) -> None:
        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate)
                release = asyncio.Event()

                @shop.server.tool()
                async def slow(order_id: str) -> str:
                    shop.effects.append(order_id)
                    await release.wait()
                    return "done"

                async with shop.client() as client:
                    keyed = KeyedClient(client, run="order-42", attempts=1)
                    with pytest.raises(MCPError, match=r"(?i)timed out"):
                        await keyed.call_tool("slow", FORTY_TWO, 0.05)
                    release.set()
                    answer = await keyed.call_tool("slow", FORTY_TWO)

                    assert (text_of(answer), shop.effects) == ("done", ["42"])

        run(work())

    def test_without_a_run_every_call_has_a_key_of_its_own_and_other_meta_stays(self, open_gate: Any) -> None:
        seen: list[Any] = []

        async def work() -> None:
            async with open_gate() as gate:
                shop = Shop(gate, scope_of=lambda ctx: seen.append(dict(ctx.meta or {})) or "test:mcp")  # type: ignore[func-returns-value]
                async with shop.client() as client:
                    keyed = KeyedClient(client)
                    await keyed.call_tool("charge", FORTY_TWO, meta={"vendor/x": 1})
                    await keyed.call_tool("charge", FORTY_TWO)
                    await keyed.call_tool("charge", FORTY_TWO, key="mine")

                    assert len(shop.effects) == 3
                    assert seen[0]["vendor/x"] == 1
                    assert len({one[KEY] for one in seen}) == 3
                    assert seen[2][KEY] == "mine"

        run(work())
