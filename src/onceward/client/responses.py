"""
From an HTTP response to a result, or to the error that it stands for. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

from onceward._core import errors
from onceward._core.errors import (
    ConfigurationError,
    InFlight,
    OncewardError,
    OutcomeUnknown,
    RateLimitError,
    RetryAdvice,
    ServiceUnreachable,
)
from onceward._core.stops import attach_stop, time_after
from onceward._core.strict_json import parse_json
from onceward._core.verdict_tables.http_statuses import PENDING_CODES
from onceward.client.service_call import ServiceCall, ServiceRequest
from onceward.http.client.responses import replayed
from onceward.protocol import errors as protocol_errors
from onceward.protocol.errors import SqlError, SqlKind
from onceward.retry.policy import stop_of
from onceward.runtime.environment import REAL

T = TypeVar("T")

_WRONG_ADDRESS_ADVICE = "check that the address is that of an onceward service, and that no proxy answers instead of it"


def result_of_response(call: ServiceCall[T], response: Any) -> T:
    """What a call came to, from a response of the HTTP library; or its error, raised."""
    status, headers, body = response.status_code, response.headers, response.content
    if status >= 400 or (status == 202 and _document(body).get("code") in PENDING_CODES):
        error = error_from_response(call.outgoing, status, headers, body).about(key=call.outgoing.key)
        stop = stop_of(response)
        raise error if stop is None else attach_stop(error, stop)
    if not 200 <= status < 300:
        raise ConfigurationError(
            f"the response is a redirect ({status}), and redirects are not followed; {_WRONG_ADDRESS_ADVICE}"
        )
    try:
        return call.read(parse_json(body), replayed(response), headers)
    except (OncewardError, KeyError, TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            f"the response ({status}) is not an onceward service's; {_WRONG_ADDRESS_ADVICE}"
        ) from None


def no_response_error(outgoing: ServiceRequest, error: Exception) -> OncewardError:
    """The error for a call without a response, from the HTTP library's own error."""
    stop = stop_of(error)
    arrived = stop is None or stop.verdict.happened is not False
    if arrived and not outgoing.repeatable:
        made: OncewardError = OutcomeUnknown(
            f"the service did not respond ({type(error).__name__}), and the call may have had its effect. Check "
            "whether it did. With an idempotency_key, or as a step of a plan, a call can be sent again safely"
        )
    else:
        made = ServiceUnreachable(
            f"the service did not respond ({type(error).__name__}). Check its address and that it is running, then "
            "send this again unchanged: it happens once",
            retry_after_seconds=None if stop is None else stop.retry_after_seconds,
            retry_at=None if stop is None else stop.retry_at,
        )
    made.about(key=outgoing.key)
    return made if stop is None else attach_stop(made, stop)


def error_from_response(
    outgoing: ServiceRequest, status: int, headers: Mapping[str, str], body: bytes
) -> OncewardError:
    """A refusal as the error that it would be in Python."""
    document = _document(body)
    code, detail = str(document.get("code", "")), str(document.get("detail", f"the service responded with {status}"))
    wait = _wait(document, headers)
    if code == SqlError.code:
        return _sql_error(document, detail, wait)
    made = InFlight if status == 202 else _CLASSES.get(code)
    if made is None:
        made = RateLimitError if status == 429 else OutcomeUnknown if status >= 500 else OncewardError
    try:
        error = made(detail, retry_after_seconds=wait)
    except TypeError:  # One that never has a wait of its own.
        error = made(detail)
        error.retry_after_seconds = wait
    error.retry_at = time_after(REAL.wall_us(), wait)
    if code and code not in _CLASSES and made is OncewardError:
        error.code = code
    if isinstance(error, OutcomeUnknown) and outgoing.repeatable:
        error.retry = RetryAdvice.SAME_KEY
    return error


def error_from_code(code: str, detail: str) -> OncewardError:
    """The error for a code of one item of a batch."""
    error = _CLASSES.get(code, OncewardError)(detail)
    error.code = code
    return error


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(body)
    except OncewardError:
        return {}
    return found if isinstance(found, dict) else {}


def _sql_error(document: dict[str, Any], detail: str, wait: float | None) -> SqlError:
    kind = document.get("kind")
    known = SqlKind(kind) if kind in set(SqlKind) else SqlKind.INVALID
    named = {name: document[name] for name in ("table", "column", "constraint", "hint") if name in document}
    error = SqlError(known, detail, **named, retry_after_seconds=wait)
    error.statement = document.get("statement")
    return error


def _wait(document: dict[str, Any], headers: Mapping[str, str]) -> float | None:
    seconds = document.get("retryAfterSeconds", headers.get("retry-after"))
    try:
        return None if seconds is None else max(0.0, float(seconds))
    except (TypeError, ValueError):
        return None


def _is_made_of_a_message(kind: type[OncewardError]) -> bool:
    """Whether a message is all that an error needs: some need numbers that a response does not have."""
    parameters = [one for one in signature(kind).parameters.values() if one.default is Parameter.empty]
    return not any(one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) for one in parameters)


_CLASSES: dict[str, type[OncewardError]] = {
    one.code: one
    for one in (*vars(errors).values(), *vars(protocol_errors).values())
    if isinstance(one, type)
    and issubclass(one, OncewardError)
    and one is not OncewardError
    and _is_made_of_a_message(one)
}
