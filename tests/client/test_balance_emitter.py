"""Deltas on a cadence, booked in a real ledger: on size, on time, at the end; and through kill -9 of either side."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from middleman import Middleman
from own_client_support import Driven, Maker

from colours import COLOURS
from onceward import AsyncGate, ConfigurationError, Gate, KeyReused, Retry
from onceward.client import Client, NothingToReceipt, Reference
from onceward.errors import KeyInvalid, RequestInvalid
from onceward.messaging.emitter import Cadence
from onceward.runtime.environment import REAL
from onceward.stores import open_async_store, open_store
from onceward.testing.clock import StillEnvironment
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")

CALLS = Reference("acme", "call", "2026-11")
QUICK = Retry(attempts=2, base=0.001, cap=0.002)


class Desk:
    """Emitters of one colour on a spool of the test's own; time stands still."""

    def __init__(self, maker: Maker, address: str, token: str, folder: Path) -> None:
        self.env = StillEnvironment(wall_us=REAL.wall_us())
        # One clock for the emitter's policy and for the client's, which is inside of it.
        self.policy = Retry(attempts=2, base=0.001, environment=self.env)
        self.client = maker(address, token=token, retry=self.policy)
        url = f"sqlite:///{folder}/spool.db"
        self._runner: asyncio.Runner | None = getattr(self.client, "_runner", None)
        if self._runner is None:
            self.gate: Any = Gate(open_store(url, environment=self.env), scope="test:demo", environment=self.env)
        else:
            store = open_async_store(url, environment=self.env)
            self.gate = AsyncGate(store, scope="test:demo", environment=self.env)

    def emitter(self, name: str = "usage", **options: Any) -> Any:
        """An emitter without a thread: `tick` is called by the test."""
        chosen = {"reference": CALLS, "retry": self.policy,
                  "cadence": Cadence(size=5, seconds=60), "timer": False, **options}  # fmt: skip
        balance = self.client.thing.balance if self._runner else self.client.balance
        made = balance.emitter(self.gate, name, **chosen)
        return Driven(made, self._runner) if self._runner else made

    def close(self) -> None:
        """Let go of the store."""
        closed = self.gate.close()
        if self._runner is not None and closed is not None:
            self._runner.run(closed)


@pytest.fixture
def between(served: Served) -> Iterator[Middleman]:
    """Somebody in between."""
    with Middleman(served.address) as middleman:
        yield middleman


@pytest.fixture
def desk(client_of: Maker, served: Served, between: Middleman, tmp_path: Path) -> Iterator[Desk]:
    """Both colours."""
    made = Desk(client_of, between.address, served.token, tmp_path)
    yield made
    made.close()


@pytest.fixture
def customer(name: str) -> str:
    """A customer of the test's own."""
    return f"cus_{name}"


class TestCadence:
    """When deltas are booked."""

    @pytest.mark.requirement("C04")
    def test_deltas_are_booked_by_size_by_time_and_at_the_end(
        self, desk: Desk, between: Middleman, customer: str
    ) -> None:
        """
        Never one by one: five wait, or the oldest has waited a minute, or the emitter is closed.
        """
        seen = []
        with desk.emitter() as emitter:
            for _ in range(7):
                emitter.emit(customer, -1, "call")
                emitter.tick()
                seen.append(len(between.passed))
            desk.env.advance(61)
            emitter.tick()
            seen.append(len(between.passed))
            emitter.emit(customer, -1, "call")

        assert seen == [0, 0, 0, 0, 1, 1, 1, 2]
        assert {one.path for one in between.passed} == {"/api/v1/balance/delta/batch"}
        assert len(between.passed) == 3
        assert (
            desk.client.balance.derive(customer).balance,
            desk.client.balance.gaps(customer).last_seq,
        ) == (Decimal(-8), 8)

    @pytest.mark.requirement("C16")
    def test_a_reference_is_made_once_and_kept_before_the_first_send(
        self, desk: Desk, between: Middleman, customer: str
    ) -> None:
        """
        Nothing was sent, and the reference is in the store; every attempt, and the ledger, have that very one.
        """
        emitter = desk.emitter()
        emitted = emitter.emit(customer, -1, "call")
        before = len(between.passed)
        between.spoil = ["lose answer", "cut"]
        reports = [emitter.flush(), emitter.flush() if emitter.resume() else None]

        assert before == 0
        assert emitted.reference.startswith("acme:call:2026-11:")
        assert emitted.key == f"test:{emitted.reference}"
        assert [one.given_up for one in reports if one] == [1, 0]
        assert len(between.sent) == 3
        assert len(set(between.sent)) == 1
        assert emitted.reference.encode() in between.passed[0].body
        assert desk.client.balance.gaps(customer).last_seq == 1
        assert desk.client.balance.receipt(customer, reference_id=emitted.reference).delta.seq == 1
        emitter.close()

    def test_an_event_emitted_again_is_one_delta(self, desk: Desk, customer: str) -> None:
        """
        Named by what the event itself says: emitted twice it is one, and another amount under its name is refused.
        """
        with desk.emitter(reference="acme:call:{customer}:{call_id}") as emitter:
            first = emitter.emit(customer, "-1.50", "call", metadata={"call_id": 7})
            again = emitter.emit(customer, Decimal("-1.5"), "call", metadata={"call_id": 7})
            with pytest.raises(KeyReused):
                emitter.emit(customer, -2, "call", metadata={"call_id": 7})
            named = emitter.emit(customer, -1, "call", reference_id=f"own:{customer}")

        assert (first.reference, first.duplicate, again.duplicate) == (f"acme:call:{customer}:7", False, True)
        assert named.reference == f"own:{customer}"
        assert desk.client.balance.derive(customer).balance == Decimal("-2.5")


class TestRefusals:
    """What cannot be booked."""

    @pytest.mark.requirement("C05")
    def test_reference_ceilings_and_cadence_have_no_default(self, desk: Desk) -> None:
        """
        Each is the caller's to say, and is checked when it is said.
        """
        balance = desk.client.thing.balance if isinstance(desk.client, Driven) else desk.client.balance
        chosen: dict[str, Any] = {"reference": CALLS, "retry": QUICK, "cadence": Cadence()}
        for name in chosen:
            with pytest.raises(TypeError, match=name):
                balance.emitter(desk.gate, "usage", **{one: value for one, value in chosen.items() if one != name})
        for name, wrong in (("reference", "acme:{timestamp}"), ("reference", "acme:{uuid}"), ("retry", 3),
                            ("cadence", 5), ("cadence", Cadence(size=101))):  # fmt: skip
            with pytest.raises(ConfigurationError):
                balance.emitter(desk.gate, "usage", **{**chosen, name: wrong})

    @pytest.mark.requirement("C57")
    def test_a_spool_of_the_other_environment_is_refused(self, desk: Desk) -> None:
        """
        What is kept for live is not booked in test.
        """
        live = desk.gate.scoped("live:demo")
        balance = desk.client.thing.balance if isinstance(desk.client, Driven) else desk.client.balance

        with pytest.raises(ConfigurationError, match="live environment"):
            balance.emitter(live, "usage", reference=CALLS, retry=QUICK, cadence=Cadence())

    def test_a_delta_that_cannot_be_booked_is_not_kept(self, desk: Desk, customer: str) -> None:
        """
        It is refused when it is emitted, where somebody can do something about it.
        """
        with desk.emitter() as emitter:
            for wrong in ({"delta": 0.5}, {"delta": 0}, {"customer": "Anna M"}, {"reason": ""}):
                with pytest.raises(RequestInvalid):
                    emitter.emit(**{"customer": customer, "delta": 1, "reason": "r", **wrong})
            with pytest.raises(KeyInvalid):
                emitter.emit(customer, 1, "r", reference_id="live:other")

            assert emitter.waiting == 0

    def test_one_that_the_ledger_refuses_does_not_hold_up_the_others(self, desk: Desk, customer: str) -> None:
        """
        Its period is closed, or the service takes it for malformed and with it the whole batch: the others are booked,
        and it is set aside.
        """
        desk.client.balance.emit(customer, 1, "r", reference_id=f"{customer}:1", period="2026-10")
        desk.client.balance.checkpoint(customer, "2026-10")
        with desk.emitter() as emitter:
            emitter.emit(customer, 1, "good")
            emitter.emit(customer, 1, "late", period="2026-10")
            emitter.emit(customer, 1, "good")
            late = emitter.flush()
            emitter.emit(customer, 1, "good")
            emitter.emit(customer, 1, "malformed", period="November")
            malformed = emitter.flush()

            assert [(one.sent, one.given_up, getattr(one.error, "code", None)) for one in (late, malformed)] == [
                (2, 1, "period_closed"),
                (1, 1, "request_invalid"),
            ]
            assert emitter.given_up == 2
        assert desk.client.balance.derive(customer).balance == Decimal(4)

    def test_what_was_accepted_is_not_lost_to_a_close(self, desk: Desk, customer: str) -> None:
        """
        The running period is closed early between an emit and its batch: the delta is set aside with the service's
        word for when to send it again, and stays in the store until somebody resumes it.
        """
        period = desk.client.balance.emit(customer, 1, "r", reference_id=f"{customer}:1").period
        with desk.emitter() as emitter:
            emitter.emit(customer, 1, "accepted")
            closed = desk.client.balance.checkpoint(customer, period, close=True)
            refused = emitter.flush()

            assert closed.closed and period in (closed.refuses or "")
            assert (refused.sent, refused.given_up) == (0, 1)
            assert (refused.error.code, refused.error.retry) == ("period_not_open", "same-key")
            assert emitter.resume() == 1
            assert emitter.waiting == 1


# A worker that emits one delta per event; what it was told is kept goes to stdout, a line each.
_WORKER = """
import sys
sys.path.insert(0, sys.argv[1])
from colours import Colour
from onceward import AsyncClient, AsyncGate, Client, Gate, Retry
from onceward.messaging.emitter import Cadence
from onceward.runtime import failpoints
from onceward.client import Reference

address, spool, customer, what, first, last = sys.argv[3:]
colour = Colour(sys.argv[2])
client = colour.pick(Client, AsyncClient)(address)
gate = colour.pick(Gate, AsyncGate)(f"sqlite:///{spool}", scope="test:demo")
emitter = client.balance.emitter(gate, "usage", reference=Reference("acme", "call", "2026-11"), retry=Retry(),
                                 cadence=Cadence(size=10, seconds=60), timer=False)
if what == "forgets":  # A worker that makes names when it sends: what the emitter is there to prevent.
    made = emitter._deltas.batch
    emitter._deltas.batch = lambda items: made([item.__class__(item.reference, item.key,
        {**item.data, "referenceId": Reference("acme", "call", "2026-11").new()}) for item in items])
if what.startswith("emit.") or what == "forgets":
    failpoints.arm("emit.settle.before" if what == "forgets" else what, "kill", skip=15)
for number in range(int(first), int(last)):
    print(colour.run(emitter.emit, customer, -1, "call").reference, flush=True)
    colour.run(emitter.tick)
if what == "exit":
    sys.exit()  # The interpreter's end books what waits.
colour.run(emitter.flush)
"""


def worker(
    served: Served, spool: Path, customer: str, what: str, events: range, colour: str = "blocking"
) -> tuple[int, list[str]]:
    """Run a worker to its end; how it ended, and the references that it was told."""
    tests = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", _WORKER, tests, colour, served.address, str(spool), customer, what]
    command += [str(events.start), str(events.stop)]
    done = subprocess.run(
        command, capture_output=True, env={"ONCEWARD_TOKEN": served.token}, timeout=120, check=False, text=True
    )
    if done.returncode > 0:
        raise AssertionError(done.stderr)
    return done.returncode, done.stdout.split()


def restarted(served: Served, spool: Path, *, forgets: bool = False) -> None:
    """The next worker, an hour later, when the dead one's leases have lapsed: books what it finds."""
    later = StillEnvironment(wall_us=REAL.wall_us() + 3_600_000_000)
    policy = Retry(environment=later)
    store = open_store(f"sqlite:///{spool}", environment=later)
    with (
        Gate(store, scope="test:demo", environment=later) as gate,
        Client(served.address, token=served.token, retry=policy) as client,
        client.balance.emitter(
            gate, "usage", reference=CALLS, retry=policy, cadence=Cadence(size=10, seconds=60), timer=False
        ) as emitter,
    ):
        if forgets:
            made = emitter._deltas.batch
            emitter._deltas.batch = lambda items: made(  # type: ignore[method-assign]
                [type(one)(one.reference, one.key, {**one.data, "referenceId": CALLS.new()}) for one in items]
            )
        emitter.tick()
        emitter.flush()


class TestKilled:
    """kill -9 of the worker, anywhere; of the service, in the middle of a batch."""

    @pytest.mark.slow
    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize(
        ("what", "told", "kept"),
        [
            ("emit.after", 15, 16),  # The sixteenth is in the spool, and the worker never heard.
            ("emit.settle.before", 20, 20),  # Two batches are booked, and only fifteen deltas noted as such.
        ],
    )
    def test_a_worker_killed_anywhere_loses_nothing_and_books_nothing_twice(
        self, served: Served, tmp_path: Path, customer: str, what: str, told: int, kept: int, colour: str
    ) -> None:
        """
        What the spool took is in the ledger, once, under the reference that it was given then.
        """
        with Client(served.address, token=served.token) as client:
            code, references = worker(served, tmp_path / "spool.db", customer, what, range(25), colour)
            restarted(served, tmp_path / "spool.db")
            booked = client.balance.derive(customer)
            receipts = {client.balance.receipt(customer, reference_id=one).id for one in references}

            assert (-signal.SIGKILL, told) == (code, len(references))
            assert (kept, Decimal(-kept)) == (booked.deltas, booked.balance)
            assert told == len(receipts)

    @pytest.mark.slow
    def test_the_check_sees_a_worker_that_makes_its_references_when_it_sends(
        self, served: Served, tmp_path: Path, customer: str
    ) -> None:
        """
        The negative control: the same kill, and names that are made for each sending. Deltas are booked twice.
        """
        with Client(served.address, token=served.token) as client:
            code, references = worker(served, tmp_path / "spool.db", customer, "forgets", range(25))
            restarted(served, tmp_path / "spool.db", forgets=True)
            booked = client.balance.derive(customer)

            assert code == -signal.SIGKILL
            assert len(references) == 20
            assert booked.deltas == 25  # Five of the twenty were sent again, under other names.
            with pytest.raises(NothingToReceipt):
                client.balance.receipt(customer, reference_id=references[0])

    @pytest.mark.requirement("C04")
    def test_a_worker_that_ends_books_what_waits(self, served: Served, tmp_path: Path, customer: str) -> None:
        """
        Nobody closed the emitter: the interpreter's exit does.
        """
        code, references = worker(served, tmp_path / "spool.db", customer, "exit", range(3))

        with Client(served.address, token=served.token) as client:
            assert (code, client.balance.derive(customer).deltas) == (0, 3)
            assert len(references) == 3

    @pytest.mark.slow
    def test_a_service_killed_in_the_middle_of_a_batch_books_all_of_it_or_none(
        self, tmp_path: Path, customer: str
    ) -> None:
        """
        It is started again on its folder, and the emitter sends what it holds: every delta once.
        """
        (tmp_path / "served").mkdir(mode=0o700)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        service = Served.started(tmp_path / "served", "--port", port)
        try:
            with (
                Middleman(service.address) as between,
                Client(between.address, token=service.token, retry=QUICK) as client,
                Gate(f"sqlite:///{tmp_path}/spool.db", scope="test:demo") as gate,
                client.balance.emitter(
                    gate, "usage", reference=CALLS, retry=QUICK, cadence=Cadence(size=10, seconds=60), timer=False
                ) as emitter,
            ):
                between.spoil = ["", service.process.kill]
                told = [emitter.emit(customer, -1, "call").reference for _ in range(30)]
                first = emitter.flush()
                service.stop()  # It is dead: this only lets go of what it said.
                service = service.again()
                resumed = emitter.resume()
                second = emitter.flush()
                booked = client.balance.derive(customer)

                assert (first.sent, first.given_up, resumed) == (10, 20, 20)
                assert (second.sent, second.given_up) == (20, 0)
                assert (booked.deltas, booked.balance) == (30, Decimal(-30))
                assert len({client.balance.receipt(customer, reference_id=one).id for one in told}) == 30
        finally:
            service.stop()
