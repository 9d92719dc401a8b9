"""
An agent that charges, mails and writes rows. It is killed after each effect, started again, and does each thing once.

    python examples/agents/order_agent.py --gate on     one charge, one mail, one row, exit 0
    python examples/agents/order_agent.py --gate off    the same agent without the gate: duplicates, exit 1

Its model is a script that asks for three tool calls in one answer. The loop saves nothing: after a crash it begins from
its input, as many agents do. The bank and the mail server are real servers, and honour nothing but what they are sent.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import smtplib
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bank import Bank, charge
from mail_server import MailServer

from onceward import NOT_FOUND, Found, current_operation
from onceward.agents import AgentGate, Tool, ToolCall

ORDER = {"order": "o-17", "amount": "12.50"}
DEATHS = ("charge", "mail", "book")
LEASE_SECONDS = 1.0
"""Short, because a probe waits until a dead holder's lease is over."""


# --- the agent ---


def tools(bank: str, mail_port: int, database: str, gated: bool) -> dict[str, Callable[..., Any]]:
    """What the model may call."""

    def charge_card(order: str, amount: str) -> Any:
        key = current_operation().downstream_key() if gated else None  # The bank knows this key when it comes again.
        return charge(bank, {"order": order, "amount": amount}, key=key)

    def send_mail(order: str, amount: str) -> str:
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = f"Order {order}", "shop@example.com", "ann@example.com"
        message["Message-ID"] = f"<{order}@example.com>"
        message.set_content(f"{amount} were charged.")
        with smtplib.SMTP("127.0.0.1", mail_port) as server:
            server.send_message(message)
        return "sent"

    def book(order: str, amount: str) -> str:
        connection = sqlite3.connect(database, isolation_level=None, timeout=30)
        connection.execute("CREATE TABLE IF NOT EXISTS books (order_id TEXT, amount TEXT)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO books VALUES (?, ?)", (order, amount))
        if gated:
            current_operation().settle_inside(connection, "booked")  # The record commits with the row.
        connection.execute("COMMIT")
        connection.close()
        return "booked"

    return {"charge": charge_card, "mail": send_mail, "book": book}


def find_mail(mails: Path, call: ToolCall) -> Any:
    """The probe of `mail`: the server's own list says whether it was taken."""
    known = mails.read_text() if mails.exists() else ""
    return Found("sent") if f"<{call.arguments['order']}@example.com>" in known else NOT_FOUND


def work(told: argparse.Namespace) -> None:
    """One process of the agent: the model's answer, and its three calls."""
    functions = tools(told.bank, told.mail_port, told.database, told.gate == "on")
    gate = AgentGate(
        f"sqlite:///{told.database}",
        scope="test:demo",
        tools={
            "charge": Tool("keyed", key="charge:{order}"),
            "mail": Tool("probed", probe=partial(find_mail, Path(told.mails))),
            "book": Tool("atomic"),
        },
        lease=LEASE_SECONDS,
    )
    run = gate.run(ORDER["order"])
    for name in DEATHS:  # What the scripted model asks for.

        def tool(name: str = name) -> Any:
            result = functions[name](**ORDER)
            if told.dies == name:
                os.kill(os.getpid(), signal.SIGKILL)  # The effect is there; nobody has noted it.
            return result

        print(name, json.dumps(run.call(name, ORDER, tool) if told.gate == "on" else tool()), flush=True)
    gate.close()


# --- the play: starts the agent, counts in the world ---


def play(gated: bool, tell: Callable[[str], None]) -> int:
    """Play it; the exit code: 0 only for one charge, one mail and one row."""
    with tempfile.TemporaryDirectory(prefix="onceward-demo-") as name:
        mails, database = Path(name) / "mails.jsonl", f"{name}/shop.db"
        tell("an agent is to charge a card, send a mail and book a row")
        with Bank() as bank, MailServer(file=mails) as server:
            for dies in (*DEATHS, ""):
                command = [
                    sys.executable, __file__, "--gate", "on" if gated else "off", "--bank", bank.url,
                    "--mail-port", str(server.port), "--mails", str(mails), "--database", database, "--dies", dies,
                ]  # fmt: skip
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                if ended.returncode != (-signal.SIGKILL if dies else 0):
                    raise SystemExit(f"the agent ended with {ended.returncode}:\n{ended.stderr}")
                tell(f"kill -9 after its {dies}, and it is started again" if dies else "the agent comes to its end")
            connection = sqlite3.connect(database)
            rows = connection.execute("SELECT count(*) FROM books").fetchone()[0]
            connection.close()
            counted = {"charges": len(bank.charges), "mails": len(server.mails), "rows": rows}
    return _told(gated, counted)


def _told(gated: bool, counted: dict[str, int]) -> int:
    print("\n  4 processes, 3 killed  ->  " + ", ".join(f"{count} {what}" for what, count in counted.items()) + "\n")
    if set(counted.values()) == {1}:
        print("ONE CHARGE, ONE MAIL, ONE ROW. Each tool call of the agent happened once.")
        return 0
    print("!!! The agent did it several times." + (" This must not happen." if gated else ""))
    return 1


def main() -> int:
    """Play; or, with --bank, be the agent."""
    parser = argparse.ArgumentParser(description="An agent, killed after each of its tool calls: one effect each.")
    parser.add_argument("--gate", choices=("on", "off"), default="on", help="with Onceward, or without")
    parser.add_argument("--bank", help=argparse.SUPPRESS)
    parser.add_argument("--mail-port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--mails", help=argparse.SUPPRESS)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--dies", default="", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.bank is None:
        return play(told.gate == "on", print)
    work(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
