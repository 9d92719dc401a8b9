"""
What a store says that it can do besides its eight methods. Nothing else about it is guessed from its attributes.

    class AcmeStore:
        capabilities = Capabilities(awaits=False, relaxes=True)

A store that says nothing has none of them. One that wraps another passes them on (`return self._store.capabilities`),
or some of them (`dataclasses.replace`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from onceward._core.caller_transaction import CallerTransaction
from onceward._core.caller_transaction_async import AsyncCallerTransaction
from onceward._core.errors import ConfigurationError
from onceward._core.record import PeekResult, PutResult, Record, Write

S = TypeVar("S")


def nested(joined: object) -> bool:
    """Whether what was joined says that its caller was in a savepoint of its own: the one place where it is asked."""
    return bool(getattr(joined, "nested", False))


class AwaitedTransaction:
    """A blocking connection under an awaiting gate: it is the caller's own, so it runs where the caller is."""

    def __init__(self, joined: CallerTransaction) -> None:
        self._joined = joined

    async def begin(self) -> bool:
        """Open or join the caller's transaction."""
        return self._joined.begin()

    async def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put a record inside the transaction."""
        return self._joined.put(write, expect)

    async def load(self, id: bytes) -> Record | None:
        """Read one record inside the transaction."""
        return self._joined.load(id)

    async def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Lengthen the life of a family of records inside the transaction."""
        return self._joined.extend(family, replay, forget)

    async def commit(self) -> None:
        """Commit, or release the savepoint."""
        self._joined.commit()

    async def rollback(self) -> bool:
        """Roll back what `begin` opened."""
        return self._joined.rollback()

    def is_over(self) -> bool:
        """Whether the transaction has ended."""
        return self._joined.is_over()

    @property
    def nested(self) -> bool:
        """Whether it is inside a savepoint of the caller's; False unless it says so."""
        return nested(self._joined)


class TransactionJoiner(Protocol):
    """How a store writes its records on a connection of the caller's own, for `gate.atomic` and `settle_inside`."""

    def join(self, connection: Any) -> CallerTransaction:
        """
        The caller's connection, ready to be joined by a function that blocks.

        Refuse, with `ConfigurationError`, a connection of a kind that you do not know, and one that is open on another
        database than the store's: there the record could not commit with the caller's rows.
        """

    def join_async(self, connection: Any) -> AsyncCallerTransaction:
        """The transaction on a connection for a function that awaits; refuse one that would block the event loop."""


@dataclass(frozen=True, slots=True)
class OwnTables:
    """The records are in Onceward's own tables, and its adapters for database libraries write them there."""

    store: object
    """One of the stores that come with Onceward."""
    around: Callable[[CallerTransaction], CallerTransaction] | None = field(default=None, repr=False)
    """Put around what an adapter has joined: by a store that wraps another and changes what is written."""
    around_async: Callable[[AsyncCallerTransaction], AsyncCallerTransaction] | None = field(default=None, repr=False)
    """The same for a function that awaits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store can do besides its eight methods. The defaults mean: nothing."""

    awaits: bool | None = None
    """
    Whether its methods are awaited. None: it does not say. A gate then takes it for one of the gate's own colour; what
    takes stores of both colours (a shared budget or breaker) refuses it.
    """
    relaxes: bool = False
    """Whether it heeds `Write.relaxed`: a settle that asks for it does not wait for the disk."""
    peek: Callable[[bytes], PeekResult | None] | None = field(default=None, repr=False)
    """
    A quick look at what a replay needs: microseconds, in both colours, or None. For stores where a look costs far less
    than a write; it is a speed-up, and guards nothing.
    """
    look: Callable[[bytes], Awaitable[PeekResult | None] | None] | None = field(default=None, repr=False)
    """
    The same where a look has to be awaited, for ids that were seen settled lately: the read is under way when this
    returns, and whoever asks at the same moment shares it. None for any other id, at once: a first call must not wait
    for a look before its claim. What is awaited never raises; None is no answer, and the claim follows.
    """
    joins: TransactionJoiner | OwnTables | None = field(default=None, repr=False)
    """How its records are written in a transaction of the caller's own."""
    identify: Callable[[], Awaitable[object]] | None = field(default=None, repr=False)
    """
    Awaited before a function that may `settle_inside`: for an awaiting store that has to ask which database it is in,
    and could not ask when a function that blocks joins it.
    """
    indexes_unsettled: bool = False
    """
    Whether a scan of unsettled records finds them by an index. Otherwise it reads its whole share of the store, and
    whoever looks at all of them asks for one piece of the ids after the other, to tell how far it is.
    """
    tables: str | None = field(default=None, repr=False)
    """
    The URL (sqlite:// or postgresql://) of the database that its records are in, where tables of other kinds may stand
    beside them: an outbox.
    """


NO_CAPABILITIES = Capabilities()


def capabilities_of(store: object) -> Capabilities:
    """The capabilities that a store declares. Nothing else reads them."""
    said = getattr(store, "capabilities", NO_CAPABILITIES)
    if not isinstance(said, Capabilities):
        raise ConfigurationError(
            f"{type(store).__name__}.capabilities is an onceward.stores.Capabilities, not {type(said).__name__}; a "
            "store that can do nothing special leaves it out"
        )
    return said


def check_colour(store: S, *, awaits: bool) -> S:
    """Give a store back, unless it says that it is of the other colour than its gate."""
    said = capabilities_of(store).awaits
    if said is not None and said is not awaits:
        ours, others = ("AsyncGate", "Gate") if awaits else ("Gate", "AsyncGate")
        raise ConfigurationError(
            f"{type(store).__name__} says that it {'awaits' if said else 'blocks'} (its capabilities), so it is for "
            f"{others}, not for {ours}"
        )
    return store
