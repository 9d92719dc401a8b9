"""
Onceward: send it as many times as you like; it happens once, and everyone learns the same answer.

At-least-once delivery, one effect. `Gate` (and `AsyncGate`) is where operations go through; see the README.
"""

from onceward._core.canonical import canonical, parse_json
from onceward._core.classifier import Classifier, should_retry
from onceward._core.derive import derive, derive_colon, input_hash
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
    SignatureInvalid,
    SourceUnknown,
    SourceUnready,
    SpoolFull,
    StoreContended,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    TargetRefused,
    TokenInvalid,
    Unrecorded,
    UploadTimeout,
)
from onceward._core.events import Event, Happening, Listener
from onceward._core.flow import Raised, Returned
from onceward._core.history import Tried
from onceward._core.key_lint import Finding, KeyReport, explain_key, lint_key, lint_recipe
from onceward._core.keys import mint_from as _mint_from
from onceward._core.letters import Letter
from onceward._core.operation import NOT_FOUND, Found, NotFound, Operation, Outcome
from onceward._core.recipes import Recipe, recipe
from onceward._core.record import Guarantee
from onceward._core.reply import Reply
from onceward._core.terms import CallOptions, Options
from onceward._core.verdict import Action, Certainty, Kind, Verdict
from onceward.emitter import AsyncEmitter, Cadence, Emitted, Emitter, Flushed, Item
from onceward.environment import REAL as _REAL
from onceward.gate import AsyncGate, Gate
from onceward.gate.dead import AsyncDeadLetterBox, DeadLetterBox
from onceward.gate.declaring import OperationContract
from onceward.gate.records import RecordView
from onceward.gate.sealing import Seal, Sealed
from onceward.gate.strict import current_operation, needs_key
from onceward.insert import Update, insert_once, insert_sql
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

__version__ = "0.1.0"

__all__ = [
    "NOT_FOUND",
    "Action",
    "AlreadySettled",
    "AmbiguousIdentity",
    "AsyncDeadLetterBox",
    "AsyncEmitter",
    "AsyncGate",
    "Attempt",
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
    "ConfigurationError",
    "DeadLetterBox",
    "DeadLetters",
    "DeadlineExceeded",
    "Emitted",
    "Emitter",
    "Event",
    "EventInvalid",
    "Expired",
    "Fault",
    "Finding",
    "Flushed",
    "Forbidden",
    "Found",
    "Gate",
    "GivenUp",
    "Guarantee",
    "HandlerFailed",
    "Happening",
    "IllegalMove",
    "InDoubt",
    "InFlight",
    "Item",
    "KeyInvalid",
    "KeyMissing",
    "KeyReport",
    "KeyReused",
    "Kind",
    "Letter",
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
    "SignatureInvalid",
    "SourceUnknown",
    "SourceUnready",
    "SpoolFull",
    "Stop",
    "StopReason",
    "StoreContended",
    "StoreCorrupt",
    "StoreFull",
    "StoreUnavailable",
    "TargetRefused",
    "TokenInvalid",
    "Tried",
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
]


def mint() -> str:
    """A new key nobody else has (36 characters, a random UUID). Store it before the first send, or a crash loses it."""
    return _mint_from(_REAL.random(16))


for _name in __all__:
    # People meet these names as `onceward.InDoubt`; tracebacks and reprs should say so too.
    if isinstance(_public := globals()[_name], type) and _public.__module__.startswith("onceward."):
        _public.__module__ = __name__
