"""
Where the first run of an operation is found in traces: a small record beside the operation's own.

It has the run's trace context, as W3C writes it (`00-TRACE-SPAN-FLAGS`), under the scope, digest and fence of the run.
It decides nothing: it is written behind the work by whoever traces, is forgotten like any other record, and a reader
who does not find it links to nothing.
"""

from __future__ import annotations

from onceward._core.erasure_marks import ERASURE
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.keys import record_id
from onceward._core.record import NOW, Guarantee, Record, State, Write

TRACE = "trace"
"""The kind of record."""

MARKS = frozenset((ERASURE, TRACE))
"""Kinds that are no operations: there is nothing to see or to decide."""

CODEC = "bytes/1"


def trace_mark_id(scope: str, digest: str, fence: int) -> bytes:
    """The id of the mark of one run."""
    return record_id(TRACE, scope, digest, str(fence))


def trace_mark(scope: str, digest: str, fence: int, context: str, keep: int, chance: bytes) -> Write:
    """What is written, where nothing stands: it is kept for `keep` microseconds."""
    return Write(
        id=trace_mark_id(scope, digest, fence),
        kind=TRACE,
        scope=scope,
        key=digest,
        operation="",
        family=None,
        state=State.SETTLED.value,
        guarantee=Guarantee.REPEATABLE.value,
        doubt=0,
        fingerprint=fingerprint_canonical(digest),
        version=chance[:16],
        token=chance[16:32],
        fence=1,
        attempt=1,
        first_at=NOW,
        settled_at=NOW,
        lease=None,
        replay=None,
        forget=keep,
        codec=CODEC,
        result=context.encode("ascii"),
        error=None,
        rise=True,
        relaxed=True,
    )


def context_of_mark(found: Record | None) -> str | None:
    """The trace context of the run; None: there is no mark, or it cannot be read."""
    if found is None or found.kind != TRACE or found.result is None:
        return None
    return found.result.decode("ascii", "replace")
