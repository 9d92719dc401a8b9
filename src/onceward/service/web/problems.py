"""
Refusals of the service as problem+json, with the statuses of its own codes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from onceward._core.errors import Fault, InDoubt, InFlight, KeyReused, OncewardError, RequestInvalid, RetryAdvice
from onceward._core.reply import Reply
from onceward.http.server.problems import PENDING_TITLE, problem_response, public_error_class
from onceward.http.server.problems import STATUSES as MIDDLEWARE
from onceward.http.server.profile import PROFILES, Profile
from onceward.http.server.published_contract import error_page
from onceward.protocol.errors import SqlError, SqlKind

log = logging.getLogger("onceward.service")

STATUSES: Mapping[str, int] = {
    "token_invalid": 401,
    "balance_exhausted": 402,
    "forbidden": 403,
    "not_found": 404,
    "database_unknown": 404,
    "method_not_allowed": 405,
    "media_type_unsupported": 415,
    "head_too_large": 431,
    "name_invalid": 400,
    "illegal_move": 409,
    "already_settled": 409,
    "reference_reused": 409,
    "period_closed": 409,
    "period_not_open": 409,
    "verification_pending": 409,
    "customer_unknown": 404,
    "delta_unknown": 404,
    "receipt_unknown": 404,
    "delta_refused": 422,
    "quota_exceeded": 429,
    "engine_closed": 503,
    "overloaded": 503,
    "outcome_unknown": 503,
}
"""Statuses of codes that the middleware does not have."""

SQL_STATUSES: Mapping[str, int] = {
    "uniqueViolation": 409,
    "foreignKey": 409,
    "readonly": 403,
    "denied": 403,
    "timeout": 408,
    "tooLarge": 413,
    "locked": 503,
    "full": 507,
}
"""Statuses of the kinds of SQL errors; any other kind is a 400."""


class RequestMalformed(RequestInvalid):
    """The request is not valid for this endpoint. Nothing was run."""


class MethodNotAllowed(OncewardError):
    """This address does not support this method."""

    code = "method_not_allowed"


class MediaTypeUnsupported(OncewardError):
    """The body must be JSON. Send Content-Type: application/json."""

    code = "media_type_unsupported"


class HeadTooLarge(OncewardError):
    """The headers are too long. Nothing was run."""

    code = "head_too_large"


class Overloaded(OncewardError):
    """The service has as much to do as it can. Nothing was run; send the request again soon."""

    code = "overloaded"
    fault = Fault.OUTSIDE
    retry = RetryAdvice.SAME_KEY


class InternalError(OncewardError):
    """The service has failed. With a key it is safe to send the request again, unchanged."""

    code = "internal"


def error_response(error: OncewardError, profile: Profile = PROFILES["default"]) -> Response:
    """An error as a response."""
    kind, members = public_error_class(error), {}
    if isinstance(error, SqlError):
        status, members = SQL_STATUSES.get(error.kind, 400), error.document()
    else:
        status = status_for(kind, profile)
    if status >= 500:
        log.error("answered %d %s: %s", status, error.code, error)
    if status == 500 and not isinstance(error, InternalError):
        error, kind = InternalError(), InternalError  # A fault of ours has one code; which it is, the log says.
    reply = problem_response(error, profile)
    # What is for operators stays in the log, as in the middleware. Errors of SQL are written for who sent it.
    for_callers = status < 500 or isinstance(error, SqlError)
    detail = str(error) if for_callers and not isinstance(error, InDoubt) else None
    if for_callers:
        members = {"title": describe_error(kind), **members}
    return starlette_response(_changed(reply, status, members, detail))


def describe_error(kind: type[OncewardError]) -> str:
    """What a code means: the first paragraph of its class's docstring."""
    return " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].split())


def status_for(kind: type[OncewardError], profile: Profile) -> int:
    """The status of an error; of an `SqlError`, see `SQL_STATUSES`."""
    if issubclass(kind, KeyReused):
        return profile.mismatch_status
    return STATUSES.get(kind.code, MIDDLEWARE.get(kind.code, 500))


def published_refusals(kinds: Iterable[type[OncewardError]], profile: Profile) -> list[dict[str, Any]]:
    """Errors as they are published: code, status, retry advice and meaning; of SQL, one for each kind."""
    found: dict[tuple[str, str | None], dict[str, Any]] = {}
    for kind in kinds:
        if issubclass(kind, SqlError):
            for one in SqlKind:
                found[kind.code, one] = {
                    "code": kind.code,
                    "kind": one.value,
                    "status": SQL_STATUSES.get(one, 400),
                    "retry": SqlError(one, "").retry.value,
                    "meaning": describe_error(kind),
                }
        elif issubclass(kind, InFlight) and profile.in_flight == "accept":
            pending = {"code": profile.pending_code, "status": 202, "retry": kind.retry.value, "meaning": PENDING_TITLE}
            found[profile.pending_code, None] = pending
        else:
            found[kind.code, None] = {
                "code": kind.code,
                "status": status_for(kind, profile),
                "retry": kind.retry.value,
                "meaning": describe_error(kind),
            }
    return list(found.values())


def problem_page(code: str, published: Iterable[Mapping[str, Any]]) -> Reply | None:
    """The page of one refusal that is published; None if there is no such code."""
    found = [one for one in published if one["code"].lower() == code]
    if not found:
        return None
    statuses = " or ".join(map(str, sorted({one["status"] for one in found})))
    advice = "same-key" if any(one["retry"] == "same-key" for one in found) else found[0]["retry"]
    return error_page(found[0]["code"], PROFILES["default"], meaning=(found[0]["meaning"], advice, statuses))


def _changed(reply: Reply, status: int, members: Mapping[str, Any], detail: str | None) -> Reply:
    document = json.loads(reply.body)
    members = {name: value for name, value in members.items() if name != "message"}
    document |= {"status": status, **members}
    if detail is not None:
        document["detail"] = detail
    headers = reply.headers
    if status == 401:
        scheme = "Bearer" if document["code"] == "token_invalid" else "Signature"
        headers = (*headers, ("www-authenticate", scheme))
    return Reply(status, headers, json.dumps(document).encode())


def starlette_response(reply: Reply) -> Response:
    """A reply as Starlette sends it."""
    response = Response(reply.body, reply.status)
    response.raw_headers = [(name.encode(), value.encode("latin-1")) for name, value in reply.headers]
    response.raw_headers.append((b"content-length", str(len(reply.body)).encode()))
    return response


async def handle_unexpected(request: Request, error: Exception) -> Response:
    """For errors that nobody expected: logged, and nothing about them is sent."""
    log.error("unexpected %s", type(error).__name__, exc_info=error)
    return error_response(InternalError())
