"""
A world small enough to try everything in: a store, its clock, and the outside.

It is a value: performing something gives a new world, so that a search can go back. Nothing in it waits, and its clock
moves only when a schedule says so. `SimulatedStore` is the honest store; `faults` has dishonest ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from onceward._core.flow import Put, PutBack
from onceward._core.holders import holder_of, is_by_lease
from onceward._core.operation import NOT_FOUND, Found, NotFound
from onceward._core.record import NOW, PutResult, Record, State, Write

SECOND = 1_000_000
BEGINNING = 1_000_000 * SECOND
"""The store's clock when a schedule begins, in microseconds."""

_UNSETTLED = (State.CLAIMED.value, State.IN_DOUBT.value)


class Row(NamedTuple):
    """A record as it landed, and when."""

    write: Write
    fence: int
    at: int

    def read(self, now: int) -> Record:
        """What a store reads at its time `now`: instants have become durations left."""
        write, elapsed = self.write, now - self.at
        return Record(
            *write[:12],
            self.fence,
            write.attempt,
            write.first_at,
            write.settled_at,
            now - write.first_at,
            None if write.lease is None else write.lease - elapsed,
            None if write.replay is None else write.replay - elapsed,
            None if write.forget is None else write.forget - elapsed,
            write.codec,
            write.result,
            write.error,
            write.holder,
        )

    def is_live(self, now: int) -> bool:
        """Whether somebody holds it, by the store's clock."""
        write = self.write
        return write.state == State.CLAIMED and write.lease is not None and write.lease > now - self.at

    def is_forgotten(self, now: int) -> bool:
        """Whether its time to be forgotten has come: as good as absent."""
        return self.write.forget is not None and self.write.forget <= now - self.at


class AppliedEffect(NamedTuple):
    """One effect that took place."""

    id: bytes
    by: str
    """Whose run it was: also the answer that the run got."""
    at: int
    key: str = ""
    """The key that was passed on to a keyed downstream."""


class TransactionLayer(NamedTuple):
    """What a transaction (or a savepoint in it) has written and not yet committed."""

    rows: tuple[Row, ...] = ()
    table: tuple[AppliedEffect, ...] = ()


class OpenTransaction(NamedTuple):
    """An open transaction of one actor: its savepoints, innermost last."""

    actor: int
    layers: tuple[TransactionLayer, ...]


class World(NamedTuple):
    """Everything that outlives a process."""

    now: int = BEGINNING
    """The store's clock. Callers' clocks differ from it, and from each other."""
    rows: tuple[Row, ...] = ()
    """The register: what is committed."""
    floor: int = 0
    """The greatest fence that was purged."""
    applied_effects: tuple[AppliedEffect, ...] = ()
    """What happened outside, by id, then by time. One per effect: a downstream that recognised a key adds none."""
    table: tuple[AppliedEffect, ...] = ()
    """The business rows of atomic mode: what is committed."""
    transactions: tuple[OpenTransaction, ...] = ()
    queue: tuple[tuple[int, Put], ...] = ()
    """Puts that wait to be sent together."""
    barred: tuple[tuple[bytes, int], ...] = ()
    """The highest fence that a fenced resource has seen, per key: it refuses a lower one."""
    past: tuple[Row, ...] = ()
    """Rows that were replaced (kept only for faults that need a stale one)."""
    erased: int = 0
    """The greatest fence that an erasure may have deleted: whatever has it, or a lower one, must not come back."""
    marked_until: int = 0
    """Until when the mark of that erasure stands."""
    lag: int = 0
    """How long a claim waits in the store after its lease has begun (it read the clock, then waited for a lock)."""
    dead: tuple[int, ...] = ()
    """Who has died, by number. Whoever named itself in its claim is seen to be dead."""

    def without(self, actor: int) -> World:
        """After the death of that actor: its transaction is undone."""
        return self.with_layers(actor, ())._replace(dead=tuple(sorted((*self.dead, actor))))

    def is_left_behind(self, row: Row) -> bool:
        """Whether the holder of that claim has died and named itself, and its lease need not be waited for."""
        process = holder_of(row.read(self.now))
        return process is not None and process.pid - 1 in self.dead and not is_by_lease(row.read(self.now))

    def find(self, id: bytes, actor: int = -1) -> Row | None:
        """The row of that id, as this actor sees it: with what its own transaction wrote."""
        for transaction in self.transactions:
            if transaction.actor == actor:
                for layer in reversed(transaction.layers):
                    for row in layer.rows:
                        if row.write.id == id:
                            return row
        for row in self.rows:
            if row.write.id == id:
                return row
        return None

    def is_locked(self, id: bytes, actor: int) -> bool:
        """Whether another actor's open transaction has written that row: the database makes us wait."""
        for transaction in self.transactions:
            if transaction.actor != actor:
                for layer in transaction.layers:
                    if any(row.write.id == id for row in layer.rows):
                        return True
        return False

    def written(self, row: Row, actor: int) -> World:
        """With this row: in the actor's transaction if it has one, else committed."""
        for transaction in self.transactions:
            if transaction.actor == actor:
                top = transaction.layers[-1]
                layer = top._replace(rows=with_row(top.rows, row))
                return self.with_layers(actor, (*transaction.layers[:-1], layer))
        return self._replace(rows=with_row(self.rows, row))

    # --- transactions ---

    def with_layers(self, actor: int, layers: tuple[TransactionLayer, ...]) -> World:
        """With that actor's transaction as these layers; none: it has no transaction."""
        others = [one for one in self.transactions if one.actor != actor]
        opened = [OpenTransaction(actor, layers)] if layers else []
        return self._replace(transactions=tuple(sorted((*others, *opened))))

    def layers(self, actor: int) -> tuple[TransactionLayer, ...]:
        """That actor's open transaction."""
        return next((one.layers for one in self.transactions if one.actor == actor), ())

    def begin(self, actor: int) -> tuple[World, bool]:
        """Open a transaction, or a savepoint in the open one; tells which."""
        layers = self.layers(actor)
        return self.with_layers(actor, (*layers, TransactionLayer())), not layers

    def commit(self, actor: int) -> World:
        """Keep what the innermost layer wrote."""
        *outer, top = self.layers(actor)
        if outer:
            under = outer[-1]
            for row in top.rows:
                under = under._replace(rows=with_row(under.rows, row))
            under = under._replace(table=under.table + top.table)
            return self.with_layers(actor, (*outer[:-1], under))
        world = self.with_layers(actor, ())
        for row in top.rows:
            world = world._replace(rows=with_row(world.rows, row))
        return world._replace(table=world.table + top.table)

    def rollback(self, actor: int) -> World:
        """Undo what the innermost layer wrote. Nothing open (a commit whose answer was lost): nothing to undo."""
        return self.with_layers(actor, self.layers(actor)[:-1])

    def insert(self, deed: AppliedEffect, actor: int) -> World:
        """Add a business row in the actor's transaction."""
        *outer, top = self.layers(actor)
        return self.with_layers(actor, (*outer, top._replace(table=(*top.table, deed))))

    # --- the outside ---

    def happened(self, id: bytes) -> Found | NotFound:
        """What somebody sees who looks where the effect takes place."""
        for deed in self.applied_effects:
            if deed.id == id:
                return Found(deed.by)
        return NOT_FOUND

    def barred_below(self, id: bytes) -> int:
        """The highest fence that the fenced resource has seen for this key."""
        return next((fence for one, fence in self.barred if one == id), 0)

    def bar(self, id: bytes, fence: int) -> World:
        """The fenced resource sees a fence."""
        others = [pair for pair in self.barred if pair[0] != id]
        return self._replace(barred=tuple(sorted((*others, (id, max(fence, self.barred_below(id)))))))

    # --- housekeeping ---

    def extended(self, family: bytes, replay: int, forget: int) -> tuple[World, int]:
        """Lengthen the lives of a family's settled records."""
        world, count = self, 0
        for row in self.rows:
            write, elapsed = row.write, self.now - row.at
            if write.family == family and write.state == State.SETTLED and (write.replay or 0) > elapsed:
                longer = None if write.forget is None else max(write.forget, elapsed + forget)
                write = write._replace(replay=max(write.replay or 0, elapsed + replay), forget=longer)
                world = world._replace(rows=with_row(world.rows, row._replace(write=write)))
                count += 1
        return world, count

    def forgotten(self) -> World:
        """Everything is lost. Fences rise all the same: in a failover the clock has gone on, if by a little."""
        return self._replace(rows=(), floor=max([self.floor, *(row.fence for row in self.rows)]))

    def erased_now(self, life: int) -> World:
        """Everything is deleted, and a mark is left for so long."""
        floor = max([self.floor, self.now, *(row.fence for row in self.rows)])
        return self._replace(rows=(), floor=floor, erased=floor, marked_until=self.now + life)

    def purged(self) -> World:
        """Delete what may be forgotten; make tombstones of what has expired."""
        kept, floor = [], self.floor
        for row in self.rows:
            write, elapsed = row.write, self.now - row.at
            if write.state not in _UNSETTLED and row.is_forgotten(self.now):
                floor = max(floor, row.fence)
                continue
            if write.state == State.SETTLED and write.replay is not None and write.replay <= elapsed:
                version = bytes(byte ^ 0xFF for byte in write.version)
                row = row._replace(write=write._replace(codec=None, result=None, error=None, version=version))
            kept.append(row)
        return self._replace(rows=tuple(kept), floor=floor)


def with_row(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    """These rows with that one in the place of its predecessor; in order of id, so that equal worlds are equal."""
    identity = row.write.id
    others = [one for one in rows if one.write.id != identity]
    if not others:
        return (row,)
    return tuple(sorted((*others, row), key=_id_of))


def _id_of(row: Row) -> bytes:
    return row.write.id


class SimulatedStore:
    """
    The honest store: compare the version, swap, say what stands there now.

    Each rule is a method of its own, so that a fault is one method done wrong.
    """

    keeps_past = False

    def put(self, world: World, put: Put, actor: int, changed: Any = None) -> tuple[World, PutResult]:
        """Put `write` where a record of that version (or none) stands. `changed`: the request, if mutated since."""
        put = self.addressed(put, changed)
        old = world.find(put.write.id, actor)
        if not self.matches(world, old, put):
            return world, self.refused(world, old, put, actor)
        now, write = world.now, put.write
        write = write._replace(
            first_at=write.first_at or now, settled_at=now if write.settled_at == NOW else write.settled_at
        )
        new = Row(write, self.fence(world, old, write), now - world.lag if write.rise else now)
        if self.keeps_past and old is not None:
            world = world._replace(past=(*world.past, old))
        return world.written(new, actor), PutResult(True, self.read(new, world, actor))

    def put_back(self, world: World, effect: PutBack, actor: int) -> tuple[World, PutResult]:
        """Put what the store forgot where nothing stands, unless it was erased."""
        put = Put(effect.at, effect.write, None)
        if self.is_marked(world):
            return world, self.refused(world, world.find(put.write.id, actor), put, actor)
        return self.put(world, put, actor)

    def is_marked(self, world: World) -> bool:
        """Whether the mark of an erasure stands."""
        return world.now < world.marked_until

    def addressed(self, put: Put, changed: Any) -> Put:
        """Where the write goes: to the id that was fixed when the call began."""
        return put

    def matches(self, world: World, old: Row | None, put: Put) -> bool:
        """Whether what stands there is what the writer expects."""
        return (None if old is None else old.write.version) == put.expect

    def fence(self, world: World, old: Row | None, write: Write) -> int:
        """The new fence: it rises with each claim, whatever the clock does."""
        return max(write.fence, world.now, world.floor + 1) if write.rise else write.fence

    def refused(self, world: World, old: Row | None, put: Put, actor: int) -> PutResult:
        """The answer to a put that did not land."""
        return PutResult(False, None if old is None else self.read(old, world, actor))

    def read(self, row: Row, world: World, actor: int) -> Record:
        """A row as that actor is shown it: time left is measured on the store's clock."""
        return row.read(world.now)

    def sent_together(self, queue: tuple[tuple[int, Put], ...]) -> tuple[tuple[int, Put], ...]:
        """Which waiting puts go into the next statement: each id once, ids in order."""
        first: dict[bytes, tuple[int, Put]] = {}
        for waiting in queue:
            first.setdefault(waiting[1].write.id, waiting)
        return tuple(first[identity] for identity in sorted(first))

    def put_together(self, world: World, together: tuple[tuple[int, Put], ...]) -> list[tuple[World, PutResult]]:
        """Perform one statement of several puts: the world after each of them, and its answer."""
        done: list[tuple[World, PutResult]] = []
        for actor, put in together:
            world, standing = self.put(world, put, actor)
            done.append((world, standing))
        return done
