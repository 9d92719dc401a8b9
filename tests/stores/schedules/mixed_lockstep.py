"""
The explorer's schedules with callers in SQL and callers in Python, in the model and on PostgreSQL at once.

Each caller has a connection of its own, and its begin, claim, work, settle, commit and rollback are carried out there:
Python's through the adapter of `gate.atomic` (or, for callers with a lease, through the store), SQL's through
`onceward_claim` and `onceward_settle`. In the model a claim in SQL is what `record.py` makes of it: insert, decide, and
insert over what may be replaced. Verdicts, records and the rows of the committed transactions must be the same.
"""

from __future__ import annotations

import random
from typing import Any, cast

import psycopg
from lockstep import Lockstep, Parted, Played, play_one
from psycopg.rows import namedtuple_row

from onceward._core import advice, record
from onceward._core.atomic_flow import operate_atomic
from onceward._core.codec import Encoded, decode, encode
from onceward._core.errors import InFlight
from onceward._core.finish_flow import outcome_of
from onceward._core.flow import (
    RANDOM_BYTES,
    Begin,
    CallFunction,
    Commit,
    Finish,
    Flow,
    LoadInTransaction,
    Put,
    Raised,
    Rollback,
)
from onceward._core.operation import AtomicOperation, Operation, Outcome
from onceward._core.operation_flow import OperationRequest
from onceward._core.record import Claimant, PutResult, Record, Refuse, Replay, Start, Write
from onceward._core.terms import Terms
from onceward.adapters.psycopg import PsycopgTransaction, join
from onceward.stores import Store
from onceward.testing.explorer import Scenario
from onceward.testing.explorer.actor_flows import CALL_FACTORY, NAME, ActorFlow, calls, scenario_terms
from onceward.testing.explorer.actors import Actor, Behaviour, CallResult, Interrupted, Position
from onceward.testing.explorer.machine import ExplorerState, ScheduleStep, Transition
from onceward.testing.explorer.scenarios import FAILS, LAPSE, make_scenario
from onceward.testing.explorer.world import AppliedEffect, World

IN_SQL = "sql.claim"
"""Where a claim in SQL is, in a schedule."""
KEY = f"test:{NAME}"
"""As a gate stores it in the explorer's scope, which names its environment."""
AGED = ("first_at", "settled_at", "lease_until", "replay_until", "forget_at")


def _ask(request: dict[str, Any], terms: Terms) -> OperationRequest:
    ask = CALL_FACTORY.request_for((KEY,), request, terms)
    return ask._replace(claimant=ask.claimant._replace(holder=None))


def calls_in_python(terms: Terms) -> ActorFlow:
    """Call an operation inside one's own transaction, as `gate.atomic` does."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        ask = _ask(request, terms)
        outcome = yield from operate_atomic(ask)
        return ((ask.claimant.id, outcome),)

    return play


def calls_in_sql(terms: Terms) -> ActorFlow:
    """Call an operation inside one's own transaction, as a stored procedure does: it never waits for a lease."""

    def play(actor: Actor, request: dict[str, Any]) -> Flow[Any]:
        claimant = _ask(request, terms).claimant
        chance = yield RANDOM_BYTES
        try:
            yield Begin("begin")
            return ((claimant.id, (yield from _in_transaction(claimant, terms, chance))),)
        except (Exception, Interrupted):
            yield Rollback("rollback")
            raise

    return play


def _in_transaction(claimant: Claimant, terms: Terms, chance: bytes) -> Flow[Outcome[Any]]:
    write = record.claim(claimant, record.FRESH, token=chance[:16], version=chance[16:32])
    put: PutResult = yield Put(IN_SQL, write, None)
    assert put.record is not None
    if not put.landed:
        match record.decide(put.record, claimant):
            case Replay(found):
                outcome = outcome_of(found, None)
                yield Commit("commit")
                return outcome
            case Refuse(why, found):
                raise advice.refusal(why, found)
            case _:
                raise InFlight("held")
    ended = yield CallFunction("call", AtomicOperation(put.record))
    if isinstance(ended, Raised):
        raise ended.error
    kept: Encoded = encode(ended.value)
    ending = record.settle(
        put.record, version=chance[32:], replay=terms.retain, forget=terms.forget, codec=kept.codec, result=kept.data
    )
    yield Finish("settle", ending, put.record.version)
    return Outcome(decode(kept, None), False, put.record.first_at, put.record.attempt, put.record.fence)


def mixed_scenarios() -> list[Scenario]:
    """Races between SQL and Python: each way round, claimed first and last, with leases, and all that goes wrong."""
    first = scenario_terms("atomic")
    last = scenario_terms("atomic", claim="last")
    everything = scenario_terms("atomic", remember="all")
    in_sql, ways = calls_in_sql(first), {"first": first, "last": last, "all": everything}
    found = []
    for way, terms in ways.items():
        python = calls_in_python(terms)
        for name, one, other in (("python", python, in_sql), ("sql", in_sql, python)):
            pair = (Actor("A", one), Actor("B", other))
            title = f"mixed-{way}-{name}"
            failing = (Actor("A", one, FAILS), Actor("B", other))
            others = (Actor("A", one), Actor("B", other, order="18"))
            three = (*pair, Actor("C", in_sql))
            trouble = {"events": (LAPSE,), "crashes": 1, "losses": 1}
            some = {} if way == "all" else {"crashes": 1, "losses": 1}
            found += [
                make_scenario(title, f"{name} comes first", terms, *pair, **trouble),
                make_scenario(f"{title}-fails", "the first one's function fails", terms, *failing, **some),
                make_scenario(f"{title}-interrupted", "an interrupt", terms, *pair, crashes=1, interrupts=1),
                make_scenario(f"{title}-other", "one key, different requests", terms, *others, crashes=1),
                make_scenario(f"{title}-three", "three race", terms, *three, crashes=1),
            ]
    return [*found, *_with_leases(in_sql)]


def _with_leases(in_sql: ActorFlow) -> list[Scenario]:
    """A holder with a lease, and a caller in SQL, which is told: in flight, in doubt, or takes it over."""
    found = []
    behaviours = {"runs": Behaviour(), "fails": FAILS, "nothing": Behaviour("before", marked=True)}
    for guarantee in ("blind", "repeatable", "keyed"):
        terms = scenario_terms(guarantee)
        for name, body in behaviours.items():
            actors = (Actor("A", calls(terms, KEY), body), Actor("B", in_sql), Actor("C", in_sql))
            title = f"mixed-{guarantee}-{name}"
            options = {} if guarantee == "blind" else {"effects_max": None}
            found.append(make_scenario(title, "a lease, and SQL", terms, *actors, events=(LAPSE,), **options))
    return found


def word_for(decision: record.Decision) -> str:
    """The verdict that stands for a decision."""
    match decision:
        case Replay(found):
            return "replay" if found.error is None else "failed"
        case Refuse(why):
            return "key_reused" if why is record.Refusal.REUSED else why.value
        case Start():
            return "fresh"
    return "in_flight"


class Stage:
    """An empty database, with a connection for every caller; as a `Theatre`, its puts are those of whoever acts."""

    def __init__(self, url: str, store: Store, admin: psycopg.Connection[Any]) -> None:
        self._url, self._store, self._admin = url, store, admin
        self._connections: dict[int, psycopg.Connection[Any]] = {}
        self._joined: dict[int, PsycopgTransaction] = {}
        self._claims: dict[int, bytes] = {}
        self._opened: set[int] = set()
        self.acting = -1
        self.claims = "onceward_claim"
        admin.execute("DELETE FROM onceward_records")
        admin.execute("DELETE FROM charges")

    def connection(self) -> psycopg.Connection[Any]:
        """The connection of whoever acts."""
        if self.acting not in self._connections:
            self._connections[self.acting] = psycopg.connect(self._url)
        return self._connections[self.acting]

    def joined(self) -> PsycopgTransaction:
        """The same as `gate.atomic` has it."""
        if self.acting not in self._joined:
            self._joined[self.acting] = join(self.connection(), self._store)
        return self._joined[self.acting]

    def lose(self, actor: int, *, dead: bool) -> None:
        """Undo what an actor has open; `dead`: with its connection."""
        connection = self._connections.get(actor)
        self._joined.pop(actor, None)
        self._opened.discard(actor)
        if connection is not None and dead:
            self._connections.pop(actor).close()
        elif connection is not None:
            connection.rollback()

    def begin(self, *, in_sql: bool) -> None:
        """Open a transaction, or a savepoint in it."""
        self._opened.add(self.acting)
        if not in_sql:
            self.joined().begin()

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """See `Theatre.put`: in the transaction, if one is open."""
        return (self.joined() if self.acting in self._opened else self._store).put(write, expect)

    def call(self, method: str, *arguments: Any) -> Any:
        """See `Theatre.call`."""
        return getattr(self._store, method)(*arguments)

    def finish(self, write: Write, expect: bytes | None) -> PutResult:
        """Settle and commit, as Python does."""
        return self.joined().finish(write, expect)

    def claim_in_sql(self, write: Write) -> Any:
        """Claim as SQL does."""
        cursor = self.connection().cursor(row_factory=namedtuple_row)
        values = (write.scope, write.key.removeprefix("test:"), write.fingerprint, write.operation)
        answer: Any = cursor.execute(f"SELECT * FROM {self.claims}(%s, %s, %s, %s)".encode(), values).fetchone()
        self._claims[self.acting] = answer.claim
        return answer

    def settle_in_sql(self, write: Write) -> None:
        """Settle as SQL does, for as long as the terms say, and commit."""
        replay, forget = write.replay or 0, write.forget or 0
        spans = (f"{replay} microseconds", f"{forget - replay} microseconds")
        text = (write.result or b"").decode()
        self.connection().execute(
            "SELECT onceward_settle(%s, %s::json, %s, %s)", (self._claims[self.acting], text, *spans)
        )
        self.connection().commit()

    def work(self, who: str) -> None:
        """The effect: a row in the open transaction."""
        self.connection().execute("INSERT INTO charges (key, who) VALUES (%s, %s)", (NAME, who))

    def charges(self) -> list[str]:
        """Who has committed a row."""
        return [who for (who,) in self._admin.execute("SELECT who FROM charges ORDER BY who").fetchall()]

    def age(self, microseconds: int) -> None:
        """See `Theatre.age`: what is committed; nobody reads what is not."""
        older = ", ".join(f"{name} = {name} - {microseconds}" for name in AGED)
        free = "SELECT id FROM onceward_records FOR UPDATE SKIP LOCKED"
        self._admin.execute(f"UPDATE onceward_records SET {older} WHERE id IN ({free})".encode())

    def close(self) -> None:
        """End every connection."""
        for connection in self._connections.values():
            connection.close()


class MixedLockstep(Lockstep):
    """The explorer's machine, with PostgreSQL beside its world, and callers in SQL among its actors."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        super().__init__(scenario, stage)
        self.stage = stage
        self.verdicts: set[str] = set()
        self._unshown = False
        self._tokens: dict[bytes, bytes] = {}

    def take(self, now: ExplorerState, step: ScheduleStep) -> tuple[ExplorerState, list[Transition]]:
        """See `Machine.take`; whoever dies or hears nothing loses its transaction on the server, too."""
        after, moves = super().take(now, step)
        if step.kind in ("crash", "die", "down", "lose"):
            self.stage.lose(step.actor, dead=step.kind in ("crash", "die"))
        self._agree("rows", sorted(deed.by for deed in after.world.table), self.stage.charges())
        return after, moves

    def _call(self, world: World, actor: Actor, operation: Operation) -> tuple[World, CallResult]:
        if not world.layers(actor.index):
            return super()._call(world, actor, operation)
        result = CallResult(actor.name, False, 0.0)
        if not actor.body.acts:
            return world, result
        self.stage.work(actor.name)
        return world.insert(AppliedEffect(operation.record.id, actor.name, world.now), actor.index), result

    def _perform(self, now: ExplorerState, position: Position) -> tuple[World, Any]:
        effect, stage, number = position.effect, self.stage, position.actor.index
        stage.acting = number
        if isinstance(effect, Put) and effect.at == IN_SQL:
            return self._claim_in_sql(now.world, effect, number)
        world, answer = super()._perform(now, position)
        in_sql = position.actor.play.__qualname__.startswith(calls_in_sql.__name__)
        match effect:
            case Begin():
                stage.begin(in_sql=in_sql)
            case Finish(write=write) if in_sql:
                stage.settle_in_sql(write)
                self._ended(answer)
            case Finish(write=write, expect=expect):
                stage.put = stage.finish  # type: ignore[method-assign]
                self._unshown = not answer.landed  # A settle that failed cannot say what is there instead.
                try:
                    self._put(write, expect, answer)
                finally:
                    del stage.put
                    self._unshown = False
                self._close(world, number)
            case Commit():
                stage.connection().commit() if in_sql else stage.joined().commit()
                self._close(world, number)
            case Rollback():
                if not answer or in_sql:
                    stage.lose(number, dead=False)
                else:
                    self._agree("rollback", True, stage.joined().rollback())
                self._close(world, number)
            case LoadInTransaction(id=id):
                self._compare("load", answer, stage.joined().load(id))
        return world, answer

    def _close(self, world: World, number: int) -> None:
        if not world.layers(number):
            self.stage._opened.discard(number)

    def _claim_in_sql(self, world: World, effect: Put, number: int) -> tuple[World, PutResult]:
        """One call of the function, which is as many puts of the model as it takes."""
        write = effect.write
        claimant = Claimant(*write[:6], write.guarantee, write.fingerprint, write.lease or 0, 0, False)
        put, decision = effect, cast(record.Decision, None)
        while True:
            world, standing = self.register.put(world, put, number)
            assert standing.record is not None
            if standing.landed:
                decision = record.FRESH
                break
            decision = record.decide(standing.record, claimant)
            if not isinstance(decision, Start) or decision.over is None:
                break
            again = record.claim(claimant, decision, token=write.token, version=write.version)
            put = Put(effect.at, again, decision.over.version)
        answer = self.stage.claim_in_sql(write)
        self.verdicts.add(answer.verdict)
        self._agree("verdict", word_for(decision), answer.verdict)
        self._agree("attempt", standing.record.attempt, answer.attempt)
        if standing.landed:
            self._agree("its fence rises", True, answer.fence > self._greatest.get(write.id, 0))
            self._greatest[write.id] = answer.fence
            self._known.fences[write.id, standing.record.fence] = answer.fence
            self._tokens[write.token] = answer.claim[32:48]
        else:
            self._agree("fence", self._known.fences.get((write.id, standing.record.fence)), answer.fence)
            self._agree("result", standing.record.result if answer.verdict == "replay" else None, answer.result)
        return world, standing

    def _ended(self, modelled: PutResult) -> None:
        """What a settle in SQL has left is what the model's settle leaves."""
        assert modelled.record is not None
        real = self.stage.call("load", modelled.record.id)
        self._known.versions[modelled.record.version] = real.version
        self._compare("settled in SQL", modelled.record, real)
        self.stage._opened.discard(self.stage.acting)

    def _compare(self, what: str, modelled: Record | None, real: Record | None) -> None:
        if self._unshown:
            return
        if modelled is not None:
            modelled = modelled._replace(token=self._tokens.get(modelled.token, modelled.token))
        super()._compare(what, modelled, real)


def play_mixed(
    url: str, store: Store, admin: psycopg.Connection[Any], schedules: int, *, seed: int, claims: str = "onceward_claim"
) -> tuple[Played, set[str]]:
    """Play that many schedules; raises `Parted` at the first that fails."""
    chosen, played, verdicts = mixed_scenarios(), Played(0, 0, 0, 0), set[str]()
    for number in range(schedules):
        stage = Stage(url, store, admin)
        stage.claims = claims
        machine = MixedLockstep(chosen[number % len(chosen)], stage)
        try:
            steps, judged = play_one(machine, random.Random(f"{seed}/{number}"))
        finally:
            stage.close()
        verdicts |= machine.verdicts
        played = Played(number + 1, played.steps + steps, played.comparisons + machine.compared, played.judged + judged)
    return played, verdicts


__all__ = ["MixedLockstep", "Parted", "Stage", "mixed_scenarios", "play_mixed"]
