"""
Onceward: send it as many times as you like; it happens once, and everyone learns the same answer.

At-least-once delivery, one effect. `Gate` (and `AsyncGate`) is where operations go through; see the README.
"""

import typing as _typing

from onceward._core.attempt_history import AttemptSummary
from onceward._core.canonical import canonical, parse_json
from onceward._core.classifier import Classifier, should_retry
from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import (
    AlreadySettled,
    AmbiguousIdentity,
    BalanceExhausted,
    BodyTooLarge,
    BudgetExhausted,
    CircuitOpen,
    ConfigurationError,
    DeadlineExceeded,
    EventInvalid,
    Expired,
    Fault,
    Forbidden,
    HandlerFailed,
    IllegalMove,
    InDoubt,
    InFlight,
    KeyInvalid,
    KeyMissing,
    KeyReused,
    NothingHappened,
    NotReplayable,
    NotSettled,
    OncewardError,
    OutcomeUnknown,
    OutOfOrder,
    OwnershipLost,
    PlanIncomplete,
    QuotaExceeded,
    RateLimitError,
    RecordedFailure,
    RecordRefused,
    RequestInvalid,
    ResultInvalid,
    RetryAdvice,
    RetryTransaction,
    SchemaMismatch,
    ScopeMissing,
    SequenceForgotten,
    ServiceUnreachable,
    SignatureInvalid,
    SourceUnknown,
    SourceUnready,
    SpoolFull,
    StoreContended,
    StoreCorrupt,
    StoreForgot,
    StoreFull,
    StoreUnavailable,
    TargetRefused,
    TokenInvalid,
    Unrecorded,
    UploadTimeout,
)
from onceward._core.events import Event, EventType, Listener
from onceward._core.flow import Raised, Returned
from onceward._core.key_derivation import derive, derive_colon, input_hash
from onceward._core.key_lint import KeyFinding, KeyReport, explain_key, lint_key, lint_recipe
from onceward._core.key_recipes import Recipe, recipe
from onceward._core.keys import mint_from as _mint_from
from onceward._core.operation import NOT_FOUND, Found, NotFound, Operation, Outcome
from onceward._core.record import Guarantee
from onceward._core.reply import Reply
from onceward._core.terms import CallOptions, Options
from onceward._core.tool_call_keys import tool_call_key
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.adapters.insert import insert_once
from onceward.adapters.insert_async import insert_once_async
from onceward.adapters.insert_statement import Inserted, Update, insert_sql
from onceward.gate import AsyncGate, Gate
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.function_inspection import OperationContract
from onceward.gate.payload_seal import Seal, Sealed
from onceward.gate.record_view import RecordView
from onceward.gate.running_operation import current_operation, needs_key
from onceward.messaging.emitter import AsyncEmitter, Cadence, Emitted, Emitter, Flushed, Item
from onceward.retry import (
    Attempt,
    Breaker,
    Budget,
    DeadLetters,
    GivenUp,
    Retry,
    Stop,
    StopReason,
    breaker,
    deadline,
    deadline_header,
    parse_deadline,
    stop_of,
    time_left,
)
from onceward.runtime.environment import REAL as _REAL

if _typing.TYPE_CHECKING:
    from onceward.client import AsyncClient, Client

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "Action",
    "AlreadySettled",
    "AmbiguousIdentity",
    "AsyncClient",
    "AsyncDeadLetterBox",
    "AsyncEmitter",
    "AsyncGate",
    "Attempt",
    "AttemptSummary",
    "BalanceExhausted",
    "BodyTooLarge",
    "Breaker",
    "Budget",
    "BudgetExhausted",
    "Cadence",
    "CallOptions",
    "Certainty",
    "CircuitOpen",
    "Classifier",
    "Client",
    "ConfigurationError",
    "DeadLetter",
    "DeadLetterBox",
    "DeadLetters",
    "DeadlineExceeded",
    "Emitted",
    "Emitter",
    "Event",
    "EventInvalid",
    "EventType",
    "Expired",
    "Fault",
    "Flushed",
    "Forbidden",
    "Found",
    "Gate",
    "GivenUp",
    "Guarantee",
    "HandlerFailed",
    "IllegalMove",
    "InDoubt",
    "InFlight",
    "Inserted",
    "Item",
    "KeyFinding",
    "KeyInvalid",
    "KeyMissing",
    "KeyReport",
    "KeyReused",
    "Kind",
    "Listener",
    "NotFound",
    "NotReplayable",
    "NotSettled",
    "NothingHappened",
    "OncewardError",
    "Operation",
    "OperationContract",
    "Options",
    "OutOfOrder",
    "Outcome",
    "OutcomeUnknown",
    "OwnershipLost",
    "PlanIncomplete",
    "QuotaExceeded",
    "Raised",
    "RateLimitError",
    "Recipe",
    "RecordRefused",
    "RecordView",
    "RecordedFailure",
    "Reply",
    "RequestInvalid",
    "ResultInvalid",
    "Retry",
    "RetryAdvice",
    "RetryTransaction",
    "Returned",
    "SchemaMismatch",
    "ScopeMissing",
    "Seal",
    "Sealed",
    "SequenceForgotten",
    "ServiceUnreachable",
    "SignatureInvalid",
    "SourceUnknown",
    "SourceUnready",
    "SpoolFull",
    "Stop",
    "StopReason",
    "StoreContended",
    "StoreCorrupt",
    "StoreForgot",
    "StoreFull",
    "StoreUnavailable",
    "TargetRefused",
    "TokenInvalid",
    "Unrecorded",
    "Update",
    "UploadTimeout",
    "Verdict",
    "breaker",
    "canonical",
    "current_operation",
    "deadline",
    "deadline_header",
    "derive",
    "derive_colon",
    "explain_key",
    "input_hash",
    "insert_once",
    "insert_once_async",
    "insert_sql",
    "lint_key",
    "lint_recipe",
    "mint",
    "needs_key",
    "parse_deadline",
    "parse_json",
    "recipe",
    "should_retry",
    "stop_of",
    "time_left",
    "tool_call_key",
]


def mint() -> str:
    """A new key nobody else has (36 characters, a random UUID). Store it before the first send, or a crash loses it."""
    return _mint_from(_REAL.random(16))


# What speaks to a service needs an HTTP library, or SQLite for a local file: imported when somebody asks for it.
_ON_DEMAND = frozenset({"AsyncClient", "Client"})


def _known_here(thing: object) -> None:
    """People meet these names as `onceward.InDoubt`; tracebacks and reprs should say so too."""
    if isinstance(thing, type) and thing.__module__.startswith("onceward."):
        thing.__module__ = __name__


for _name in __all__:
    if _name not in _ON_DEMAND:
        _known_here(globals()[_name])

if not _typing.TYPE_CHECKING:  # A type checker would take any name for one that this function finds.

    def __getattr__(name: str) -> object:
        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from onceward import client

        found = globals()[name] = getattr(client, name)
        _known_here(found)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ON_DEMAND})
