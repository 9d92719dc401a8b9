"""A FastMCP server: one effect for each key, and one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastmcp", reason="in make test-agents")

from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware.error_handling import RetryMiddleware
from fastmcp.tools.base import ToolResult
from in_a_loop import run
from mcp.shared.exceptions import MCPError
from mcp_types import ImageContent, TextContent

from onceward.agents import AgentGate, Tool, tool
from onceward.agents.fastmcp import OncewardToolMiddleware
from onceward.agents.mcp_fields import CODE, KEY, REPLAYED

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:fastmcp")

FORTY_TWO: dict[str, Any] = {"order_id": "42"}
K1: Any = {KEY: "k1"}


class Shop:
    """A server with a tool that counts its effects."""

    def __init__(self, gate: AgentGate, *, gated: bool = True, **options: Any) -> None:
        self.effects: list[str] = []
        self.server = FastMCP("shop")
        self.once = OncewardToolMiddleware(gate, **options)
        if gated:
            self.server.add_middleware(self.once)
        self.server.tool(self.charge)

    async def charge(self, order_id: str, amount: int = 1) -> dict[str, Any]:
        """Charge an order."""
        self.effects.append(order_id)
        return {"charged": order_id, "number": len(self.effects)}


async def ask(client: Any, name: str, arguments: dict[str, Any] = FORTY_TWO, meta: Any = None) -> Any:
    """The whole result, errors included."""
    return await client.call_tool_mcp(name, arguments, meta=meta)


def text_of(result: Any) -> str:
    """What the model reads."""
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


def code_of(result: Any) -> Any:
    """Why it was not made."""
    return (result.meta or {}).get(CODE)


@pytest.fixture
def open_gate(tmp_path: Path) -> Callable[..., AgentGate]:
    """Opens gates on one file: each stands for a process of its own."""

    def opens(**tools: Tool) -> AgentGate:
        return AgentGate(f"sqlite:///{tmp_path}/mcp.db", scope="test:mcp", tools=tools, wait=5)

    return opens


@pytest.mark.parametrize("gated", [True, False])
def test_a_call_repeated_under_its_key_has_one_effect_and_two_without_the_gate(open_gate: Any, gated: bool) -> None:
    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate, gated=gated)
            async with Client(shop.server) as client:
                first = await ask(client, "charge", meta=K1)
                second = await ask(client, "charge", meta=K1)

                assert len(shop.effects) == (1 if gated else 2)
                assert (second.content == first.content) is gated
                assert [bool((one.meta or {}).get(REPLAYED)) for one in (first, second)] == [False, gated]

    run(work())


def test_calls_at_the_same_time_under_one_key_have_one_effect(open_gate: Any) -> None:
    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate)
            async with Client(shop.server) as client:
                await asyncio.gather(*(ask(client, "charge", meta=K1) for _ in range(8)))

                assert shop.effects == ["42"]

    run(work())


def test_a_tool_with_an_effect_called_without_a_key_is_refused_before_it_runs(open_gate: Any) -> None:
    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate, require_key=True)
            async with Client(shop.server) as client:
                with pytest.raises(MCPError, match="came without a key"):
                    await ask(client, "charge")

                assert shop.effects == []

    run(work())


def test_an_error_that_the_tool_tells_releases_and_a_crash_leaves_doubt(open_gate: Any) -> None:
    """FastMCP says "please retry" of a time-out: the model reads that it may have happened, and no invitation."""

    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate)
            funds: list[int] = []

            @shop.server.tool
            async def pay(order_id: str) -> str:
                if not funds:
                    raise ToolError("no funds yet")
                return "paid"

            @shop.server.tool
            async def broken(order_id: str) -> str:
                shop.effects.append(order_id)
                raise TimeoutError("the bank did not answer")

            async with Client(shop.server) as client:
                told = await ask(client, "pay", meta=K1)
                funds.append(1)
                paid = await ask(client, "pay", meta=K1)
                failed = await ask(client, "broken", meta={KEY: "k2"})
                again = await ask(client, "broken", meta={KEY: "k2"})

                assert (text_of(told), told.is_error, text_of(paid)) == ("no funds yet", True, "paid")
                assert shop.effects == ["42"]
                assert [code_of(failed), code_of(again)] == ["tool_failed", "in_doubt"]
                assert "but may have happened" in text_of(failed)
                assert "retry" not in text_of(failed) + text_of(again)

    run(work())


def test_invalid_arguments_are_never_claimed(open_gate: Any) -> None:
    """A model that corrects its arguments makes the same call: the business key is still free."""

    async def work() -> None:
        async with open_gate(charge=Tool("blind", key="charge:{order_id}")) as gate:
            shop = Shop(gate)

            @shop.server.tool
            def with_context(order_id: str, ctx: Context, amount: int = 1) -> str:
                return f"{order_id} {amount}"

            async with Client(shop.server) as client:
                wrong = await ask(client, "charge", {"order_id": "42", "amount": "many"})
                extra = await ask(client, "charge", {"order_id": "42", "colour": "red"})
                missing = await ask(client, "nothing", meta={KEY: "k2"})
                right = await ask(client, "charge", {"order_id": "42", "amount": "3"})
                other = await ask(client, "with_context", {"order_id": "42", "amount": "3"}, meta={KEY: "k3"})

                assert text_of(other) == "42 3"
                assert wrong.is_error
                assert extra.is_error
                assert "amount" in text_of(wrong)
                assert "nothing" in text_of(missing)
                assert (right.is_error, shop.effects) == (False, ["42"])

    run(work())


def test_content_survives_byte_for_byte(open_gate: Any) -> None:
    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate)

            @shop.server.tool
            def picture(order_id: str) -> ToolResult:
                shop.effects.append(order_id)
                return ToolResult(
                    content=[TextContent(text="größe"), ImageContent(data="iVBORw0KGgo=", mime_type="image/png")],
                    structured_content={"none": None, "float": 1.0, "big": 2**60},
                    meta={"vendor/x": [1, None]},
                )

            async with Client(shop.server) as client:
                plain = await ask(client, "picture")
                first = await ask(client, "picture", meta=K1)
                second = await ask(client, "picture", meta=K1)

                assert len(shop.effects) == 2
                assert first.model_dump_json() == plain.model_dump_json()
                assert set(second.meta) - set(first.meta) == {REPLAYED}
                assert second.model_copy(update={"meta": first.meta}).model_dump_json() == first.model_dump_json()

    run(work())


def test_a_client_that_gave_up_is_given_the_first_answer(open_gate: Any) -> None:
    async def work() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        async with open_gate() as gate:
            shop = Shop(gate)

            @shop.server.tool
            async def slow(order_id: str, ctx: Context) -> str:
                begun.set()
                await go_on.wait()
                shop.effects.append(order_id)
                await ctx.report_progress(1)
                return "done"

            async with Client(shop.server) as client:
                first = asyncio.ensure_future(ask(client, "slow", meta=K1))
                await begun.wait()
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
                again = asyncio.ensure_future(ask(client, "slow", meta=K1))
                await asyncio.sleep(0)
                go_on.set()

                assert text_of(await again) == "done"
                assert shop.effects == ["42"]

    run(work())


def test_equal_calls_of_a_run_are_numbered(open_gate: Any) -> None:
    """For clients that send no keys: the same call wanted twice is two; what was not delivered is found again."""

    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate, run="order-42")
            async with Client(shop.server) as client:
                await ask(client, "charge")
                await ask(client, "charge")
                assert len(shop.effects) == 2
        async with open_gate() as gate:
            after = Shop(gate, run=lambda context: "order-42")
            async with Client(after.server) as client:
                await ask(client, "charge")
                assert after.effects == []
                await ask(client, "charge")
                assert after.effects == ["42"]

    run(work())


def test_decorators_and_trusted_annotations_say_what_a_tool_is(open_gate: Any) -> None:
    async def work() -> None:
        async with open_gate() as gate:
            shop = Shop(gate, require_key=True, trust_annotations=True)

            @shop.server.tool
            @tool("read-only")
            def declared() -> str:
                return "declared"

            @shop.server.tool(annotations={"readOnlyHint": True})
            def annotated() -> str:
                return "annotated"

            async with Client(shop.server) as client:
                assert text_of(await ask(client, "declared", {})) == "declared"
                assert text_of(await ask(client, "annotated", {})) == "annotated"

    run(work())


def test_what_repeats_calls_must_be_outside(open_gate: Any) -> None:
    """Inside, it would repeat effects within one operation; outside, it finds the record."""

    async def work(outside: bool) -> tuple[int, Any]:
        async with open_gate() as gate:
            effects: list[str] = []
            retrying, once = RetryMiddleware(base_delay=0.001), OncewardToolMiddleware(gate)
            server = FastMCP("shop", middleware=[retrying, once] if outside else [once, retrying])

            @server.tool
            async def broken(order_id: str) -> str:
                effects.append(order_id)
                raise ConnectionError("lost")

            async with Client(server) as client:
                try:
                    return len(effects), code_of(await ask(client, "broken", meta={KEY: f"k{outside}"}))
                except MCPError:
                    return len(effects), "refused"
                finally:
                    counted.append(len(effects))

    counted: list[int] = []
    assert run(work(True))[1] == "tool_failed"
    assert run(work(False))[1] == "refused"
    assert counted == [1, 0]


def test_tenants_are_separated(open_gate: Any) -> None:
    async def work() -> None:
        tenant = ["acme"]
        async with open_gate(charge=Tool("blind", key="charge:{order_id}")) as gate:
            shop = Shop(gate, scope_of=lambda context: f"live:{tenant[0]}")
            async with Client(shop.server) as client:
                await ask(client, "charge")
                await ask(client, "charge")
                tenant[0] = "globex"
                await ask(client, "charge")

                assert len(shop.effects) == 2

    run(work())
