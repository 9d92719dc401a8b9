"""
An agent whose tool calls are made again: after a lost answer, after a crash, and after the model changed its mind.

The model here is a script, so that this runs anywhere; everything else is what an agent loop does. A call is the same
call if its run, its tool, its arguments and its number among equal calls are: not by the id that the model gives it,
which is new each time. Where a model may rewrite its arguments, a business key says what must happen once: then other
arguments are refused, in words that the model can act on.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from onceward.agents import AgentGate, ForModel, Tool

ACME = {"customer": "acme", "amount": "12.50"}
GLOBEX = {"customer": "globex", "amount": "7.00", "order": "o-9"}
TOOLS = {"send_invoice": Tool("blind", check="find_invoice"), "invoice_order": Tool("blind", key="invoice:{order}")}

sent: list[str] = []
"""Where an invoice ends up: the effect that must happen once."""


def send_invoice(customer: str, amount: str, **_: str) -> dict[str, Any]:
    """The tool."""
    sent.append(f"{customer}: {amount}")
    return {"invoice": f"inv-{len(sent)}", "customer": customer, "amount": amount}


def restarted(store: str, calls: list[tuple[str, str, dict[str, str]]]) -> None:
    """One process of the agent: it begins from its input, and makes the calls that its model asks for."""
    gate = AgentGate(store, scope="test:agents", tools=TOOLS)
    run = gate.run("invoices-of-march")
    for id, tool, arguments in calls:
        before = len(sent)
        result = run.call(tool, arguments, partial(send_invoice, **arguments), id=id)
        if isinstance(result, ForModel):
            print(f"{id}: {result.code}: {result.text}")
        else:
            print(f"{id}: {result['invoice']} ({'ran' if len(sent) > before else 'replayed'})")
    gate.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'agent.db'}"
        restarted(store, [("call_8f31", "send_invoice", ACME), ("call_8f31", "send_invoice", ACME)])
        # It crashed. The model answers anew, with other ids, and writes the members in another order.
        restarted(store, [("call_02c9", "send_invoice", dict(reversed(ACME.items())))])
        restarted(store, [("call_77aa", "invoice_order", GLOBEX), ("call_d410", "invoice_order", GLOBEX)])
        restarted(store, [("call_1b22", "invoice_order", GLOBEX | {"amount": "7.01"})])
    print(f"6 tool calls, {len(sent)} invoices: {', '.join(sent)}")


if __name__ == "__main__":
    main()
