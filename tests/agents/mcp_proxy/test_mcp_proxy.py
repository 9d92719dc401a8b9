"""What passes, what is held back, and what the client is told; the server's tools count their effects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from proxy_kit import answered, awaiting, call, line, talking

from onceward import Found
from onceward.agents import Tool
from onceward.agents.mcp_fields import CODE, KEY, REPLAYED
from onceward.agents.mcp_proxy.lines import LineTooLong
from onceward.agents.mcp_proxy.tools_file import ServerTools

READ_ONLY = ServerTools({"search": Tool("read-only")})

PASSING = [
    b'{ "jsonrpc":"2.0",  "id":0,"method":"initialize","params":{"x":1.50}}\r\n',
    line(method="notifications/initialized"),
    line(id="a", method="tools/list"),
    line(id=99, result={"role": "assistant", "content": {"type": "text", "text": 'say "tools/call"'}}),
    line(id=5, method="sampling/createMessage", params={}),
    line(method="notifications/progress", params={"progressToken": 1, "progress": 0.5}),
    line(method="notifications/cancelled", params={"requestId": 12345}),
    b'[{"jsonrpc":"2.0","id":6,"method":"ping"}, {"jsonrpc":"2.0","method":"notifications/x"}]\n',
    b"[]\n",
    b"\n",
    b"this is not JSON {{{\n",
    b'{"id":7,"method":"ping","params":{"a":NaN,"a":1}}\n',
    line(id=8, method="x", params={"blob": "y" * 300_000}),
    b'{"id":9,"method":"without an end"}',
]


def _last(lines: list[bytes]) -> list[bytes]:
    return lines[-len(PASSING) :]


@awaiting
async def test_everything_else_passes_byte_by_byte_and_in_order() -> None:
    """
    Requests, notifications, answers, batches, nonsense and long lines, in both directions.
    """
    async with talking() as talk:
        here = talk()
        await here.says(*PASSING)
        for one in PASSING:
            await here.server.says(one)

    assert here.server.lines == PASSING
    assert here.client.lines == PASSING


@awaiting
async def test_the_first_answer_reaches_the_client_as_the_server_wrote_it() -> None:
    """
    Also a gated call and its answer pass in their own bytes; ids keep their type and spelling.
    """
    sent = b'{"params":{"arguments":{"b":1.0,"a":"\\u00e9"},"name":"charge"},"method":"tools/call","id":"7"}\n'
    async with talking() as talk:
        here = talk()
        await here.says(sent)

    assert here.server.lines == [sent]
    assert here.client.lines == [
        b'{ "result":{"content":[{"type":"text","text":"done 1"}],"n":1.50} ,"id":"7","jsonrpc":"2.0" }\n'
    ]


@pytest.mark.fault("a-call-is-sent-before-it-is-claimed")
@awaiting
async def test_a_call_is_claimed_before_the_server_sees_it() -> None:
    """
    When the server has the call, its record stands in the store.
    """
    async with talking(store="memory://claimed-first") as talk:
        here = talk()
        found: list[int] = []
        records = here.gate.blocking.records
        here.server.answers_with = lambda message, n: found.append(len(list(records.list()))) or answered(message, n)  # type: ignore[func-returns-value]
        await here.says(call())

    assert found == [1]


@awaiting
async def test_the_result_is_stored_before_the_client_sees_it() -> None:
    """
    When the client has the answer, a repetition would be replayed, whatever becomes of this process.
    """
    states: list[str] = []
    async with talking(store="memory://stored-first") as talk:
        here = talk()
        records = here.gate.blocking.records
        write = here.client.write

        async def written(data: bytes) -> bool:
            states.extend(one.state for one in records.list())
            return await write(data)

        here.client.write = written  # type: ignore[method-assign]
        await here.says(call())

    assert states == ["settled"]


@pytest.mark.fault("a-written-answer-is-not-delivered")
@awaiting
async def test_an_equal_call_after_a_delivered_answer_is_another_one() -> None:
    """
    The same call wanted twice across a restart gives two effects.
    """
    async with talking() as talk:
        first, second = talk(), talk()
        second.server = second.proxy._server = first.server
        await first.says(call())
        first.server.proxy = second.proxy
        await second.says(call())

    assert first.server.effects == ["charge", "charge"]
    assert REPLAYED not in second.client.results()[1].get("_meta", {})


@pytest.mark.requirement("B45")
@pytest.mark.fault("an-answer-counts-as-delivered-without-a-client")
@awaiting
async def test_an_equal_call_after_an_answer_that_nobody_got_is_the_same_one() -> None:
    """
    The same call repeated gives one effect: the client had gone, and is given the first answer when it comes again.
    """
    async with talking() as talk:
        first, second, third = talk(), talk(), talk()
        first.client.gone = True
        await first.says(call())
        await second.says(call("again"))
        await third.says(call())

    assert [len(one.server.effects) for one in (first, second, third)] == [1, 0, 1]
    result = second.client.results()["again"]
    assert (result["content"][0]["text"], result["n"], result["_meta"]) == ("done 1", 1.5, {REPLAYED: True})


@pytest.mark.requirement("D75")
@awaiting
async def test_without_the_gate_a_repeated_call_has_two_effects() -> None:
    """
    The negative control: the same two talks, and the tool is said to be read-only.
    """
    async with talking(tools=ServerTools({"charge": Tool("read-only")})) as talk:
        first, second = talk(), talk()
        first.client.gone = True
        await first.says(call())
        await second.says(call("again"))

    assert len(first.server.effects + second.server.effects) == 2


@awaiting
async def test_an_answer_may_count_once_the_client_goes_on_after_it() -> None:
    """
    With `followed`, a client that was killed with the answer in its hands is given it again.
    """
    async with talking(followed=True) as talk:
        first, second, third = talk(), talk(), talk()
        await first.says(call())
        await second.says(call(2))
        await second.says(line(id=3, method="ping"))
        await third.says(call())

    assert [len(one.server.effects) for one in (first, second, third)] == [1, 0, 1]
    assert second.client.results()[2]["_meta"] == {REPLAYED: True}


@awaiting
async def test_two_equal_calls_side_by_side_are_two() -> None:
    """
    A model that wants the same thing twice in one answer gets it twice.
    """
    async with talking() as talk:
        here = talk()
        await here.says(call(1), call(2))

    assert here.server.effects == ["charge", "charge"]
    assert sorted(here.client.results()) == [1, 2]


@pytest.mark.fault("a-cancellation-reaches-the-server")
@awaiting
async def test_a_cancelled_call_runs_on_and_the_retry_is_given_its_answer() -> None:
    """
    The client's time-out cancels its wait and not the effect: one effect, and the retry reads the first answer.
    """
    async with talking() as talk:
        here = talk()
        here.server.answers_with = lambda message, n: None
        await here.proxy.from_client(call(1))
        await here.server.seen.wait()
        await here.proxy.from_client(line(method="notifications/cancelled", params={"requestId": 1}))
        await here.proxy.from_client(call(2))
        await here.server.says(line(id=1, result={"content": [{"type": "text", "text": "slow"}]}))
        await here.proxy.finish(60)

    assert here.server.lines == [call(1)]
    assert list(here.client.results()) == [2]
    assert here.client.results()[2]["content"][0]["text"] == "slow"


@pytest.mark.fault("an-error-is-stored-as-a-success")
@pytest.mark.parametrize(
    "members",
    [
        {"error": {"code": -32602, "message": "no such order"}},
        {"result": {"isError": True, "content": []}},
        {"result": {"resultType": "input_required", "inputRequests": {}}},
        {"result": {"task": {"taskId": "t-1", "status": "working"}}},
    ],
)
@awaiting
async def test_what_is_not_the_last_word_passes_and_frees_the_key(members: dict[str, Any]) -> None:
    """
    Errors that the server answers, requests for input and tasks are never replayed: the next call runs.
    """
    async with talking() as talk:
        first, second = talk(), talk()
        first.server.answers_with = lambda message, n: line(id=message.id, **members)
        await first.says(call(1, _meta={KEY: "k"}))
        await first.says(call(2, _meta={KEY: "k"}))
        await second.says(call(3, _meta={KEY: "k"}))

    assert first.client.lines == [line(id=1, **members), line(id=2, **members)]
    assert len(first.server.effects + second.server.effects) == 3
    assert "done 1" in str(second.client.results()[3])


@awaiting
async def test_an_error_may_leave_doubt_where_the_tools_file_says_so() -> None:
    """
    `errors = "doubt"`: a server that reports a time-out has not said that nothing happened.
    """
    tools = ServerTools({"charge": Tool("blind", check="find_charge")}, doubtful=frozenset({"charge"}))
    async with talking(tools=tools) as talk:
        here = talk()
        here.server.answers_with = lambda message, n: line(
            id=message.id, result={"isError": True, "content": [{"type": "text", "text": "timed out"}]}
        )
        await here.says(call(1))
        await here.says(call(2))

    assert here.server.effects == ["charge"]
    first, second = here.client.results()[1], here.client.results()[2]
    assert "timed out" in first["content"][0]["text"] and "may have happened" in first["content"][0]["text"]
    assert "Check with find_charge" in second["content"][0]["text"]
    assert second["_meta"] == {CODE: "in_doubt"}


@pytest.mark.fault("a-server-that-died-has-done-nothing")
@awaiting
async def test_a_server_that_ends_before_it_answers_leaves_doubt() -> None:
    """
    The client is told at once, in words that do not invite to repeat; the next equal call is not run, in any process.
    """
    async with talking() as talk:
        first, second = talk(), talk()
        first.server.answers_with = lambda message, n: None
        await first.proxy.from_client(call(1))
        await first.server.seen.wait()
        first.proxy.server_gone()
        await first.proxy.finish(60)
        await second.says(call(2))

    assert first.server.effects + second.server.effects == ["charge"]
    told = first.client.results()[1]
    assert told["isError"] is True
    assert "but may have happened" in told["content"][0]["text"]
    assert "may already have happened" in second.client.results()[2]["content"][0]["text"]


@awaiting
async def test_a_key_from_the_client_wins_over_the_run() -> None:
    """
    The same key is the same call, in whatever run; with other arguments it is refused, and the model is told.
    """
    async with talking() as talk:
        first, second = talk("one"), talk("two")
        await first.says(call(1, _meta={KEY: "order-42"}))
        await second.says(call(1, _meta={KEY: "order-42"}), call(2, arguments={"order": "43"}, _meta={KEY: "order-42"}))

    assert first.server.effects + second.server.effects == ["charge"]
    assert second.client.results()[1]["_meta"] == {REPLAYED: True}
    assert second.client.results()[2]["_meta"] == {CODE: "key_reused"}


@awaiting
async def test_a_template_wins_over_everything() -> None:
    """
    A business key: other arguments beside it, another run, another key of the client, and still one effect.
    """
    tools = ServerTools({"charge": Tool("blind", key="charge:{order}")})
    async with talking(tools=tools) as talk:
        first, second, third = talk("one"), talk("two"), talk(None)
        await first.says(call(1))
        await second.says(call(1, _meta={KEY: "mine"}))
        await third.says(call(1), call(2, arguments={}))

    assert first.server.effects + second.server.effects + third.server.effects == ["charge"]
    assert third.client.results()[1]["_meta"] == {REPLAYED: True}
    assert third.client.results()[2]["code"] == -32602


@pytest.mark.requirement("B04")
@awaiting
async def test_without_a_run_a_call_without_a_key_is_refused() -> None:
    """
    Nobody could tell its retry from another call. A read-only tool needs neither.
    """
    async with talking(tools=READ_ONLY) as talk:
        here = talk(None)
        await here.says(call(1), call(2, "search"), call(3, _meta={KEY: "k"}))

    assert here.server.effects == ["search", "charge"]
    assert here.client.results()[1]["code"] == -32602
    assert "--run" in here.client.results()[1]["message"]


class TestAnnotations:
    """What a server says of its own tools is believed only where told to."""

    LISTING = line(
        id=1,
        result={
            "tools": [
                {"name": "search", "annotations": {"readOnlyHint": True}},
                {"name": "charge", "annotations": {"readOnlyHint": False}},
                {"name": "plain"},
            ]
        },
    )

    @pytest.mark.fault("annotations-are-believed-unasked")
    @pytest.mark.parametrize("trusts", [True, False])
    @awaiting
    async def test_a_read_only_tool_passes_if_the_server_is_trusted(self, trusts: bool) -> None:
        """
        Twice the same search: two calls at the server if it is believed, else one and a replay.
        """
        async with talking(trusts=trusts) as talk:
            here = talk()
            await here.says(line(id=1, method="tools/list"))
            await here.server.says(self.LISTING)
            await here.says(*(call(id, tool, _meta={KEY: tool}) for id, tool in ((2, "search"), (3, "search"))))
            await here.says(*(call(id, tool, _meta={KEY: tool}) for id, tool in ((4, "charge"), (5, "charge"))))

        assert here.server.effects.count("search") == (2 if trusts else 1)
        assert here.server.effects.count("charge") == 1
        assert here.client.lines[0] == self.LISTING

    @awaiting
    async def test_what_was_said_before_a_change_counts_no_longer(self) -> None:
        """
        After `notifications/tools/list_changed` a tool is gated until the server says again what it is.
        """
        async with talking(trusts=True) as talk:
            here = talk()
            await here.says(line(id=1, method="tools/list"))
            await here.server.says(self.LISTING)
            await here.server.says(line(method="notifications/tools/list_changed"))
            await here.says(call(2, "search", _meta={KEY: "k"}), call(3, "search", _meta={KEY: "k"}))

        assert here.server.effects == ["search"]

    @awaiting
    async def test_an_answer_to_something_else_is_no_listing(self) -> None:
        """
        Only the answer to `tools/list` is believed.
        """
        async with talking(trusts=True) as talk:
            here = talk()
            await here.says(line(id=1, method="resources/list"))
            await here.server.says(self.LISTING)
            await here.says(call(2, "search", _meta={KEY: "k"}), call(3, "search", _meta={KEY: "k"}))

        assert here.server.effects == ["search"]

    @awaiting
    async def test_a_name_in_the_tools_file_that_no_tool_has_is_told(self) -> None:
        """
        A misspelled name protects nothing: whoever wrote it learns of it after the last page of the listing.
        """
        async with talking(tools=ServerTools({"chrage": Tool("blind"), "charge": Tool("blind")})) as talk:
            here = talk()
            await here.says(line(id=1, method="tools/list"))
            await here.server.says(self.LISTING)

        assert here.notes == ['the tools file names "chrage", and this server has no such tool']


class TestBatches:
    """JSON-RPC batches, which some versions of the protocol have."""

    @awaiting
    async def test_a_batch_with_a_call_is_split_and_answered_as_one(self) -> None:
        """
        The call is claimed by itself, the rest goes on as a batch, and the client reads one array with every answer.
        """
        batch = (
            b"[" + b", ".join((call(1).strip(), line(id=2, method="ping").strip(), call(3, "search").strip())) + b"]\n"
        )
        async with talking(tools=READ_ONLY) as talk:
            here = talk()
            here.server.answers_with = lambda message, n: answered(message, n) if message.id == 1 else None
            await here.proxy.from_client(batch)
            await here.server.says(b"[" + line(id=2, result={}).strip() + b"," + line(id=3, result={}).strip() + b"]\n")
            await here.proxy.finish(60)

        assert sorted(here.server.lines) == sorted(
            [call(1), b"[" + line(id=2, method="ping").strip() + b"," + call(3, "search").strip() + b"]\n"]
        )
        assert len(here.client.lines) == 1
        assert sorted(here.client.results()) == [1, 2, 3]

    @awaiting
    async def test_a_batch_of_the_server_gives_up_only_what_is_held(self) -> None:
        """
        An answer to a held call in an array is stored; the rest of the array passes.
        """
        async with talking() as talk:
            here = talk()
            here.server.answers_with = lambda message, n: None
            await here.proxy.from_client(call(1))
            await here.server.seen.wait()
            progress = line(method="notifications/progress", params={}).strip()
            await here.server.says(b"[" + progress + b"," + line(id=1, result={"content": []}).strip() + b"]\n")
            await here.proxy.finish(60)

        assert here.client.lines == [b"[" + progress + b"]\n", line(id=1, result={"content": []})]

    @awaiting
    async def test_a_refused_call_in_a_batch_has_its_place_in_the_answer(self) -> None:
        """
        A call that may not pass is answered beside the others; one that runs runs.
        """
        batch = b"[" + call(1, arguments=[1]).strip() + b"," + call(2).strip() + b"]"
        async with talking() as talk:
            here = talk()
            await here.says(batch)

        assert here.server.effects == ["charge"]
        assert len(here.client.lines) == 1
        assert here.client.results()[1]["code"] == -32602


class TestRefusedLines:
    """What could slip past the gate is refused, and the server sees nothing of it."""

    @pytest.mark.fault("an-unclear-line-passes")
    @pytest.mark.parametrize(
        "sent",
        [
            b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"charge"}}\n',
            b'{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","params":{"name":"charge"}}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","Name":"charge"}}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":{"a":1,"a":2}}}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","arguments":[]}}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge","_meta":{"dev.onceward/key":7}}}\n',
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}\n',
        ],
    )
    @awaiting
    async def test_a_call_that_can_be_read_in_two_ways_is_refused(self, sent: bytes) -> None:
        """
        Duplicate members, other letters, nonsense where the arguments should be.
        """
        async with talking(tools=READ_ONLY) as talk:
            here = talk()
            await here.says(sent)

        assert here.server.lines == []
        assert here.client.results()[1]["code"] in (-32600, -32602)

    @awaiting
    async def test_a_call_without_an_id_is_dropped(self) -> None:
        """
        Nobody could be answered, and a lax server would run it: it is told on stderr.
        """
        async with talking() as talk:
            here = talk()
            await here.says(line(method="tools/call", params={"name": "charge", "arguments": {}}))

        assert here.server.lines == []
        assert here.client.lines == []
        assert "needs an id" in here.notes[0]

    @awaiting
    async def test_a_line_that_is_too_long_is_refused(self) -> None:
        """
        What is in it is not known, so it does not pass.
        """
        async with talking() as talk:
            here = talk()
            await here.proxy.from_client(LineTooLong("a line has more than 9 bytes"))

        assert here.client.messages[0]["error"]["message"].startswith("a line has more than 9 bytes")

    @pytest.mark.fault("an-id-may-be-used-twice")
    @awaiting
    async def test_another_request_with_the_id_of_a_held_call_is_refused(self) -> None:
        """
        Its answer would be stored as that of the call.
        """
        async with talking() as talk:
            here = talk()
            here.server.answers_with = lambda message, n: None
            await here.proxy.from_client(call(1))
            await here.server.seen.wait()
            await here.proxy.from_client(line(id=1, method="ping"))
            await here.proxy.from_client(line(id=2, method="ping"))
            await here.proxy.from_client(call(2))
            await here.server.says(line(id=1, result={"content": []}))
            await here.proxy.finish(60)

        assert here.server.lines == [call(1), line(id=2, method="ping")]
        assert [one.get("error", {}).get("code") for one in here.client.messages] == [-32600, -32600, None]


@awaiting
async def test_a_read_only_tool_and_a_continuation_pass_as_they_are() -> None:
    """
    A tool without effects is never claimed; a call that brings the input that was asked for is the server's own affair.
    """
    async with talking(tools=READ_ONLY) as talk:
        here = talk()
        sent = [call(1, "search"), call(2, inputResponses={"a": {}}), call(3, inputResponses={"a": {}})]
        await here.says(*sent)

    assert here.server.lines == sent
    assert not [one for one in here.client.messages if "_meta" in one["result"]]


@awaiting
async def test_a_server_that_answers_with_another_type_of_id_is_understood() -> None:
    """
    Some answer 7 with "7": the result is stored, and passes as it came.
    """
    async with talking() as talk:
        here = talk()
        reply = line(id="7", result={"content": []})
        here.server.answers_with = lambda message, n: reply
        await asyncio.wait_for(here.says(call(7)), 60)

    assert here.client.lines == [reply]


@awaiting
async def test_what_a_person_decided_is_given_as_a_result() -> None:
    """
    A record in doubt that was reconciled with plain data answers the next call.
    """
    async with talking(store="memory://decided") as talk:
        first, second = talk(), talk()
        gate = first.gate
        first.server.answers_with = lambda message, n: None
        await first.proxy.from_client(call(1, _meta={KEY: "k"}))
        await first.server.seen.wait()
        first.proxy.server_gone()
        await first.proxy.finish(60)
        gate.blocking.reconcile("k", Found({"charged": "42"}))
        await second.says(call(1, _meta={KEY: "k"}))

    result = second.client.results()[1]
    assert result["structuredContent"] == {"charged": "42"}
    assert json.loads(result["content"][0]["text"]) == {"charged": "42"}
    assert second.server.effects == []
