"""
The published contract: `/.well-known/idempotency`, which says what callers may rely on, and a page for each refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from html import escape
from json import dumps
from typing import Any, TypeAlias

from onceward._core import errors
from onceward._core.durations import SECOND
from onceward._core.errors import OncewardError
from onceward._core.reply import Reply
from onceward._core.terms import Terms
from onceward.http.server.problems import PENDING_TITLE, STATUSES, WELL_KNOWN, title_of
from onceward.http.server.profile import Profile
from onceward.http.server.unknown_caller import CallerUnknown

RouteContract: TypeAlias = tuple[str, tuple[Profile, Terms] | None]
"""The path of a route, and how it is treated; None: not at all."""

_HIDDEN = frozenset(
    {"probe", "memory_bytes_max", "lease", "lease_max", "keyed_for", "result_bytes_max", "retry", "breaker", "budget"}
)
"""Fields that are not published."""


def contract_of(profile: Profile, terms: Terms) -> dict[str, Any]:
    """A profile as a document: names in camelCase, durations in seconds."""
    document: dict[str, Any] = {}
    for field in fields(profile):
        if field.name not in _HIDDEN:
            document[_camel(field.name)] = _plain(getattr(profile, field.name))
    document["retainSeconds"] = _seconds(terms.retain)
    document["tombstoneSeconds"] = 0 if terms.after_expiry == "run" else _seconds(terms.tombstone)
    document["afterExpiry"] = terms.after_expiry
    document["waitSeconds"] = _seconds(terms.wait) if profile.in_flight == "wait" else 0
    document["resultBytesMax"] = terms.result_bytes_max
    document["refusals"] = [_refusal(code, profile) for code in STATUSES]
    for name in ("retain", "tombstone", "wait"):
        document.pop(name, None)
    return document


KEY_FIELDS = (
    *("name", "requireKey", "keyHeader", "keyCharactersMax", "plans", "planHeader", "stepHeader", "both"),
    *("inFlight", "waitSeconds", "pendingCode", "mismatchStatus", "replayHeader", "planReplayHeader"),
    *("retainSeconds", "afterExpiry", "tombstoneSeconds", "guarantee", "transactional"),
)
"""What a contract says about keys and nothing else: for an app that has limits and refusals of its own."""


def key_contract(profile: Profile, terms: Terms) -> dict[str, Any]:
    """What a profile promises about keys, without what cannot happen under it."""
    document = contract_of(profile, terms)
    kept = {name: document[name] for name in KEY_FIELDS}
    if profile.in_flight != "accept":
        del kept["pendingCode"]
    if not profile.plans:
        for name in ("planHeader", "stepHeader", "both", "planReplayHeader"):
            del kept[name]
    return kept


def contract_in_force(profile: Profile, terms: Terms, routes: Iterable[RouteContract] = ()) -> dict[str, Any]:
    """The contract of an app as a document: its profile, and the differences of single routes."""
    document = contract_of(profile, terms)
    document["routes"] = [{"path": path, **_differences(document, treated)} for path, treated in routes]
    return document


def _differences(document: dict[str, Any], treated: tuple[Profile, Terms] | None) -> dict[str, Any]:
    if treated is None:
        return {"skip": True}
    return {name: value for name, value in contract_of(*treated).items() if value != document[name]}


def contract_response(profile: Profile, terms: Terms, routes: Iterable[RouteContract] = ()) -> Reply:
    """The contract in force, as an HTTP response."""
    return document_response(contract_in_force(profile, terms, routes))


def document_response(document: dict[str, Any]) -> Reply:
    """A published document, as an HTTP response."""
    headers = (("content-type", "application/json"), ("cache-control", "max-age=300"))
    return Reply(200, headers, dumps(document, indent=2).encode())


def error_page(
    code: str, profile: Profile, *, contract: str = WELL_KNOWN, meaning: tuple[str, str, int | str] | None = None
) -> Reply | None:
    """
    The HTML page of one refusal; None if there is no such code.

    For a code of the service's own, `meaning` is its title, its retry advice and its status.
    """
    kind = _CLASSES.get(code)
    status: int | str
    if meaning is not None:
        title, retry, status = meaning
    elif code == profile.pending_code.lower():
        title, retry, status = PENDING_TITLE, "same-key", 202
    elif kind is not None:
        if code == "scope_missing" and profile.unscoped == 401:
            kind = CallerUnknown
        title, retry = title_of(kind), kind.retry.value
        status = profile.mismatch_status if code == "key_reused" else STATUSES.get(code, 500)
        status = 401 if kind is CallerUnknown else status
    else:
        return None
    advice = {
        "same-key": "Send the same request again, with the same key, after the time in Retry-After.",
        "new-key": "The key was used for a different operation: use a new key for this one.",
        "never": "Sending it again will not help. Do not use a new key to get around this: that is how things happen "
        "twice.",
    }[retry]
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(code)}</title><body style='font:16px/1.5 system-ui;max-width:40em;margin:3em auto'>"
        f"<h1><code>{escape(code)}</code></h1><p>HTTP status {status}. {escape(title)}</p>"
        f"<p><strong>Retry: {escape(retry)}.</strong> {escape(advice)}</p>"
        f"<p><a href='{escape(contract)}'>What this service promises about keys</a></p></body></html>"
    )
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = (
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "max-age=300"),
    )
    return Reply(200, headers, page.encode())


_CLASSES = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, OncewardError) and one is not OncewardError
}


def _refusal(code: str, profile: Profile) -> dict[str, Any]:
    kind = _CLASSES[code]
    status = profile.mismatch_status if code == "key_reused" else STATUSES[code]
    if code == "in_flight" and profile.in_flight == "accept":
        status, code = 202, profile.pending_code
    return {"code": code, "status": status, "retry": kind.retry.value, "meaning": title_of(kind)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, str | int | float | bool) else "by rule"


def _seconds(micros: int) -> int | float:
    return micros // SECOND if micros % SECOND == 0 else micros / SECOND
