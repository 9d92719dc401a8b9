"""
An agent whose tool calls are sent again: after a lost answer, after a crash, and after the model changed its mind.

The model here is a script, so that this runs anywhere; everything else is what an agent loop does. The key of a tool
call is derived from what stays the same when the call is made again (worker, run, turn, tool, input), and not from
the id that the model gives the call: that one is new each time.

A derived key counts the input in, so a call with another input is another operation. Where a model may rewrite its
input on a retry, name the step instead, as the last call here does: then a changed input is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from onceward import Gate, OncewardError, derive

WORKER = "billing-agent"
RUN = "run-42"
GLOBEX = {"customer": "globex", "amount": "7.00"}

outbox: list[str] = []
"""Where an invoice ends up: the effect that must happen once."""


def send_invoice(customer: str, amount: str) -> dict[str, Any]:
    """The tool."""
    outbox.append(f"{customer}: {amount}")
    return {"invoice": f"inv-{len(outbox)}", "customer": customer, "amount": amount}


class ToolCall(NamedTuple):
    """What a model asks for. The id is made up by the model, anew for every attempt."""

    id: str
    turn: int
    tool: str
    input: dict[str, str]


class Answer(NamedTuple):
    """What the model is told: a result, or a refusal that says what may be done about it."""

    content: dict[str, Any]
    replayed: bool = False


def use_tool(gate: Gate, call: ToolCall) -> Answer:
    """Run a tool call once, however often it is sent."""
    key = derive(worker=WORKER, run=RUN, turn=call.turn, tool=call.tool, input=call.input)
    try:
        outcome = gate.call(key, lambda: send_invoice(**call.input), request=call.input, name=call.tool)
    except OncewardError as error:
        return refused(error)
    return Answer(outcome.value, outcome.replayed)


def use_tool_in_plan(gate: Gate, step: str, call: ToolCall) -> Answer:
    """The same, where the key is the step of a plan and the input is what the step stands for."""
    try:
        outcome = gate.plan(RUN).call(step, lambda: send_invoice(**call.input), request=call.input)
    except OncewardError as error:
        return refused(error)
    return Answer(outcome.value, outcome.replayed)


def refused(error: OncewardError) -> Answer:
    """What an agent can act on: whose fault it is, whether to send it again, and under which key."""
    return Answer({"error": error.code, "fault": error.fault, "retry": error.retry, "message": str(error)})


def scripted_model() -> Iterator[ToolCall]:
    """The same intent, sent four times under four ids."""
    invoice = {"customer": "acme", "amount": "12.50"}
    yield ToolCall("call_8f31", 1, "send_invoice", invoice)
    yield ToolCall("call_02c9", 1, "send_invoice", invoice)  # No answer came: sent again.
    yield ToolCall("call_77aa", 1, "send_invoice", dict(reversed(invoice.items())))  # Members in another order.
    yield ToolCall("call_d410", 1, "send_invoice", invoice)  # After a restart, from the saved state.


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'agent.db'}"
        gate = Gate(store, scope="test:agents")
        answers = []
        for number, call in enumerate(scripted_model(), start=1):
            if number == 4:
                gate.close()  # The process ends; the next one knows nothing but what is stored.
                gate = Gate(store, scope="test:agents")
            answer = use_tool(gate, call)
            if number == 1:
                print(f"{call.id}: the tool ran, and its answer was lost on the way")
            else:
                print(f"{call.id}: {answer.content['invoice']} ({'replayed' if answer.replayed else 'ran'})")
            answers.append(answer.content)
        assert all(answer == answers[0] for answer in answers)

        use_tool_in_plan(gate, "invoice-globex", ToolCall("call_1b", 2, "send_invoice", GLOBEX))
        rewritten = ToolCall("call_2b", 2, "send_invoice", GLOBEX | {"amount": "7.01"})
        answer = use_tool_in_plan(gate, "invoice-globex", rewritten)
        print(f"{rewritten.id}, rewritten by the model: {answer.content['error']}, retry: {answer.content['retry']}")
        gate.close()
    print(f"6 tool calls, {len(outbox)} invoices: {', '.join(outbox)}")


if __name__ == "__main__":
    main()
