"""
Onceward's promise in a few seconds: many senders, one of them killed in the middle, one charge.

    python examples/demo.py --gate on     one charge, equal answers, exit 0
    python examples/demo.py --gate off    the same senders without the gate: duplicates, exit 1

And a second act: a worker that reconciles a bank statement, killed twice; see reconciler/ for it. And a third: an agent
that charges, mails and writes rows, killed after each of them; see agents/order_agent.py.

There is a bank (a real HTTP server in a process of its own, see bank.py) and six senders, each a process of its own.
All of them send the same charge, five times each, as a queue or an agent would that never heard an answer. The first
sender is killed with `kill -9` at the worst moment: the bank has taken the money, and the answer is not recorded yet.
It is then started again, as a supervisor would do.

With the gate, the operation is declared `keyed`: the bank honours keys, so what may have happened can be sent again
under the same key. Nothing is timed: the sender is killed when all others are known to wait for it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bank import charge, statement

sys.path.insert(0, str(Path(__file__).with_name("reconciler")))
sys.path.insert(0, str(Path(__file__).with_name("agents")))

import order_agent
from second_act import second_act

from onceward import Gate, OncewardError, Operation
from onceward.errors import RetryAdvice
from onceward.gate import Event, EventType

SENDERS = 6
SENDS = 5
LEASE_SECONDS = 2
"""Short, so that a dead holder is noticed while you watch. The default is 60."""
PATIENCE_SECONDS = 60
"""Nothing here takes this long; a machine that is very busy may come near."""

ORDER = {"order": "o-17", "amount": "12.50"}


# --- a sender: what your worker, agent or service would be ---


def send_through_gate(store: str, bank: str, dies: bool) -> None:
    """Send the charge several times through a gate."""
    gate = Gate(store, scope="test:demo", listeners=[report_event], lease=LEASE_SECONDS, wait=PATIENCE_SECONDS)

    def charge_card(operation: Operation) -> dict[str, Any]:
        charged = charge(bank, ORDER, key=operation.downstream_key())
        report("charged")
        if dies:
            wait_to_be_killed()
        return charged

    sent = 0
    while sent < SENDS:
        try:
            outcome = gate.call("charge:o-17", charge_card, request=ORDER, guarantee="keyed")
        except OncewardError as error:
            if error.retry is not RetryAdvice.SAME_KEY:
                raise
            continue  # The error says that the same key is safe: send again.
        sent += 1
        report("answer", answer=outcome.value, replayed=outcome.replayed)
    gate.close()


def send_without_gate(bank: str, dies: bool) -> None:
    """Send the charge several times, and hope."""
    for _ in range(SENDS):
        charged = charge(bank, ORDER)
        report("charged")
        if dies:
            wait_to_be_killed()
        report("answer", answer=charged, replayed=False)


def wait_to_be_killed() -> None:
    """Stand still between the effect and its record. Nobody ever writes to our standard input."""
    sys.stdin.read()


def report(what: str, **details: Any) -> None:
    """Tell the demo what happened."""
    print(json.dumps({"what": what, **details}), flush=True)


def report_event(event: Event) -> None:
    """Tell the demo that this sender waits for another one. A listener is any function of an event."""
    if event.type is EventType.WAITING:
        report("waiting")


# --- the demo itself: starts the processes, kills one, counts ---


class Sender:
    """A sender in a process of its own, and what it has reported."""

    def __init__(self, name: str, arguments: list[str], news: queue.Queue[None]) -> None:
        self.name = name
        self.answers: list[str] = []
        self.replays = 0
        self.runs = 0
        self.has_said: set[str] = set()
        self.process = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, args=(news,), daemon=True)
        self._reader.start()

    def _read(self, news: queue.Queue[None]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if said["what"] == "charged":
                self.runs += 1
            if said["what"] == "answer":
                self.answers.append(json.dumps(said["answer"], sort_keys=True))
                self.replays += said["replayed"]
            self.has_said.add(said["what"])
            news.put(None)
        self.has_said.add("ended")
        news.put(None)

    def end(self) -> int:
        """Make sure that it is gone; what it ended with."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        return code


class Story:
    """Tells what happens, with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        """One step."""
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)


class Demo:
    """One run: everything it starts is gone when it ends."""

    def __init__(self, gated: bool, stack: ExitStack) -> None:
        self.gated = gated
        self._stack = stack
        self._news: queue.Queue[None] = queue.Queue()
        self.story = Story()
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="onceward-demo-"))
        self._store = f"sqlite:///{Path(folder) / 'demo.db'}"
        self.bank = self._open_bank()

    def _open_bank(self) -> str:
        bank = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("bank.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(bank)
        self._stack.callback(bank.kill)
        assert bank.stdout is not None
        url = bank.stdout.readline().strip()
        self.story.tell(f"a bank opens at {url}; it honours keys, if any are sent")
        return url

    def start(self, name: str, *, dies: bool = False) -> Sender:
        """Start a sender."""
        arguments = ["--gate", "on" if self.gated else "off", "--bank", self.bank, "--store", self._store]
        sender = Sender(name, arguments + ["--dies"] * dies, self._news)
        self._stack.callback(sender.end)
        return sender

    def hear(self, what: str, senders: list[Sender], enough: Callable[[Iterable[bool]], bool] = all) -> None:
        """Wait until all (or any) of these senders have said this, or have ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not enough(not sender.has_said.isdisjoint((what, "ended")) for sender in senders):
            try:
                self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise SystemExit(f"nobody said {what!r} for {PATIENCE_SECONDS} s; is this machine very busy?") from None

    def run(self) -> list[Sender]:
        """The whole story; the senders, the killed one first."""
        doomed = self.start("1, killed", dies=True)
        self.hear("charged", [doomed])
        self.story.tell("sender 1 has charged the card; nobody knows yet but the bank")
        others = [self.start(str(number)) for number in range(2, SENDERS + 1)]
        self.hear("waiting" if self.gated else "ended", others)
        if self.gated:
            self.story.tell(f"senders 2 to {SENDERS} send the same charge; they wait, for sender 1 holds the claim")
        else:
            self.story.tell(f"senders 2 to {SENDERS} send the same charge, {SENDS} times each")
        os.kill(doomed.process.pid, signal.SIGKILL)
        doomed.process.wait()
        self.story.tell(f"kill -9 {doomed.process.pid}: sender 1 dies before it can record the bank's answer")
        again = self.start("1, restarted")
        self.story.tell("sender 1 is started again and sends as well")
        if self.gated:
            self.story.tell(f"nobody renews the dead sender's lease: it runs out within {LEASE_SECONDS} s")
            self.hear("charged", [*others, again], any)
            heir = next((sender.name for sender in [*others, again] if sender.runs), "?")
            self.story.tell(f"sender {heir} takes over and sends the same key; the bank knows it, and charges nothing")
        self.hear("ended", [*others, again])
        if any(len(sender.answers) != SENDS for sender in [*others, again]):
            raise SystemExit("a sender ended early; what it said is above")
        self.story.tell("everybody has an answer")
        return [doomed, again, *others]


class Counted(NamedTuple):
    """What it came to."""

    sends: int
    requests: int
    charges: int
    answers: int


def count(senders: list[Sender], bank: str) -> Counted:
    """Ask the bank, and compare what the senders were told."""
    seen = statement(bank)
    answers = {answer for sender in senders for answer in sender.answers}
    sends = sum(len(sender.answers) for sender in senders) + 1  # The killed one sent, and heard nothing.
    return Counted(sends, seen["requests"], len(seen["charges"]), len(answers))


def show(senders: list[Sender], counted: Counted) -> None:
    """The table, and the picture."""
    print(f"\n  {'sender':14}{'sends':>6}{'reached the bank':>18}{'replayed':>10}   told")
    for sender in senders:
        told = sorted({json.loads(answer)["charge"] for answer in sender.answers}, key=lambda name: int(name[3:]))
        sends = max(len(sender.answers), 1 if "killed" in sender.name else 0)
        print(f"  {sender.name:14}{sends:>6}{sender.runs:>18}{sender.replays:>10}   {', '.join(told) or 'nothing'}")
    print(
        f"\n  {counted.sends} sends  ->  {counted.requests} requests to the bank  ->  {counted.charges} "
        f"charge{'s' * (counted.charges != 1)}  ->  {'equal' if counted.answers == 1 else counted.answers} answers\n"
    )


def tell_the_end(gated: bool, counted: Counted) -> int:
    """The last line, and the exit code: 0 only for one charge and one answer."""
    if counted.charges == 1 and counted.answers == 1:
        print("ONE CHARGE. At-least-once delivery, one effect, and everybody was told the same.")
        return 0
    print("!" * 72)
    print(f"!!! {counted.charges} CHARGES FOR ONE ORDER: the customer paid {counted.charges} times.")
    print("!!! " + ("This must not happen with the gate on." if gated else "This is what retrying and hoping does."))
    print("!" * 72)
    return 1


def main() -> int:
    """Run the demo; or, with --bank, be one of its senders."""
    parser = argparse.ArgumentParser(description="Many senders, one killed with kill -9: one charge.")
    parser.add_argument("--gate", choices=("on", "off"), default="on", help="with Onceward, or without")
    parser.add_argument("--bank", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parser.add_argument("--dies", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    gated = told.gate == "on"
    if told.bank is not None:
        if gated:
            send_through_gate(told.store, told.bank, told.dies)
        else:
            send_without_gate(told.bank, told.dies)
        return 0
    print(f"The same charge, sent by {SENDERS} processes, {SENDS} times each. The gate is {told.gate}.\n")
    with ExitStack() as stack:
        demo = Demo(gated, stack)
        senders = demo.run()
        counted = count(senders, demo.bank)
    show(senders, counted)
    code = tell_the_end(gated, counted)
    print(f"\nThe second act: a worker is killed twice. Its tables refuse a second row: {told.gate}.\n")
    code = max(code, second_act(gated, Story().tell))
    print(f"\nThe third act: an agent is killed after each of its tool calls. The gate is {told.gate}.\n")
    return max(code, order_agent.play(gated, Story().tell))


if __name__ == "__main__":
    sys.exit(main())
