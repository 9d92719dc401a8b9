"""
The gate: where operations go through once. `Gate` blocks, `AsyncGate` awaits.

A gate performs and decides nothing: every rule is a flow in `_core`, which yields what it needs done. `call_factory`
turns a call into a `PreparedCall` (key, fingerprint, terms, function), `effect_runner` performs what its flow yields,
`lease_renewer` keeps the claim while the function runs, `waiter_registry` wakes who waits for it.

May import: `_core`, `runtime`, `stores`, `adapters`, and of the outbox what writes a message in the caller's
transaction. Not `journal`, `http`, `service`.

Start with `gate_async.py` (`gate.py` is made from it), then `call_factory.py` and `effect_runner.py`. Plans,
sequences, windows, records and dead letters are a file each; `X_base.py` and `X_calls.py` are what both colours share.
"""

from onceward._core.attempt_history import AttemptSummary
from onceward._core.dead_letters import DeadLetter
from onceward._core.events import Event, EventType, Listener
from onceward._core.flow import Raised, Returned
from onceward._core.operation import NOT_FOUND, Found, NotFound, Operation, Outcome
from onceward._core.record import Guarantee
from onceward._core.reply import Reply
from onceward._core.sealing import Seal, SealContext, SealedData
from onceward._core.terms import CallOptions, Options
from onceward.gate.dead_letter_box import DeadLetterBox
from onceward.gate.dead_letter_box_async import AsyncDeadLetterBox
from onceward.gate.function_inspection import OperationContract
from onceward.gate.gate import Gate
from onceward.gate.gate_async import AsyncGate
from onceward.gate.record_view import RecordView
from onceward.gate.running_operation import current_operation, needs_key
from onceward.gate.seal_keys import Sealed

__all__ = [
    "NOT_FOUND",
    "AsyncDeadLetterBox",
    "AsyncGate",
    "AttemptSummary",
    "CallOptions",
    "DeadLetter",
    "DeadLetterBox",
    "Event",
    "EventType",
    "Found",
    "Gate",
    "Guarantee",
    "Listener",
    "NotFound",
    "Operation",
    "OperationContract",
    "Options",
    "Outcome",
    "Raised",
    "RecordView",
    "Reply",
    "Returned",
    "Seal",
    "SealContext",
    "Sealed",
    "SealedData",
    "current_operation",
    "needs_key",
]
