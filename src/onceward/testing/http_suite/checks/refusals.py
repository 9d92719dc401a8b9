"""
Checks of refusals: their shape and codes, and where the rules are published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin

from onceward._core.errors import ConfigurationError, RetryAdvice
from onceward.testing.http_suite.check_support import NotShown, check, require
from onceward.testing.http_suite.checks.concurrency import in_flight_refusal
from onceward.testing.http_suite.execution_detector import ExecutionDetector
from onceward.testing.http_suite.raw_http import (
    NoTargetResponse,
    TargetResponse,
    TargetUnreachable,
    read_url,
)
from onceward.testing.http_suite.target_client import TargetClient

PROBLEM = "application/problem+json"
BLANK = "about:blank"
RETENTION = re.compile(r"retention|retain|ttl|expir", re.IGNORECASE)
ADVICE = frozenset(advice.value for advice in RetryAdvice)
DEPTH_MAX = 8


@check(
    "problem-shape",
    sends="an invalid key, another body under a used key, and no key where one is required",
    must="each is `application/problem+json` with `type`, `title`, `status` and, where promised, `code` and `retry`",
    when=lambda expected: expected.problem_json,
)
def problem_shape(detector: ExecutionDetector) -> None:
    for name, response in _refusals(detector).items():
        require(response.media_type == PROBLEM, f"the refusal of {name} is {response.media_type or 'without a type'}")
        body = response.json if isinstance(response.json, dict) else {}
        missing = [member for member in ("type", "title") if not isinstance(body.get(member), str)]
        require(not missing, f"the refusal of {name} has no {' and no '.join(missing)}")
        require(body.get("status") == response.status, f"the refusal of {name} says status {body.get('status')!r}")
        if detector.client.expected.codes:
            require(isinstance(body.get("code"), str), f"the refusal of {name} has no code")
            require(
                body.get("retry") in ADVICE, f"the refusal of {name} does not say `retry`: {', '.join(sorted(ADVICE))}"
            )


@check(
    "stripe-shape",
    sends="an invalid key, another body under a used key, and (with `--slow`) a duplicate while the first runs",
    must='each is `application/json` with `{"error": {"type": ..., "message": ...}}`; of the last two, the type is '
    "`idempotency_error`",
    when=lambda expected: expected.stripe_errors,
)
def stripe_shape(detector: ExecutionDetector) -> None:
    refused = dict(_refusals(detector))
    if (held := in_flight_refusal(detector)) is not None:
        refused[DUPLICATE] = held
    for name, response in refused.items():
        require(
            response.media_type == "application/json", f"the refusal of {name} is {response.media_type or 'untyped'}"
        )
        error = response.json.get("error") if isinstance(response.json, dict) else None
        require(isinstance(error, dict), f"the refusal of {name} has no object under `error`: an SDK sees a success")
        for member in ("type", "message"):
            found = error.get(member) if isinstance(error, dict) else None
            require(isinstance(found, str) and bool(found), f"the refusal of {name} has no error.{member}")
            if member == "type" and name in (CHANGED, DUPLICATE):
                require(found == "idempotency_error", f"the refusal of {name} has the type {found!r}")


@check(
    "refusal-codes",
    sends="an invalid key, another body under a used key, and no key where one is required",
    must="the codes are `key_invalid`, `key_reused` and `key_missing`",
    when=lambda expected: expected.codes,
)
def refusal_codes(detector: ExecutionDetector) -> None:
    codes = {INVALID: "key_invalid", CHANGED: "key_reused", MISSING: "key_missing"}
    for name, response in _refusals(detector).items():
        require(
            response.code == codes[name], f"the refusal of {name} says {response.code or 'no code'}, not {codes[name]}"
        )


@check(
    "problem-link",
    sends="GET to what a refusal links to: its `type`, or its `Link` with `rel=describedby`",
    must="there is a page (another host is asked only with `--follow-links`)",
    when=lambda expected: expected.problem_json,
)
def problem_link(detector: ExecutionDetector) -> None:
    for name, response in _refusals(detector).items():
        link = _link(response)
        if link is None:
            require(not detector.client.expected.link_required, f"the refusal of {name} links to nothing")
            raise NotShown(f"the refusal of {name} links to nothing, which this profile allows")
        found = _fetched(detector.client, link)
        require(found.status < 400, f"what the refusal of {name} links to is answered {found}")


@check(
    "retention-published",
    sends="GET /.well-known/idempotency (`--well-known`)",
    must="JSON that says how long results are kept (a member such as `retentionSeconds`)",
)
def retention_published(detector: ExecutionDetector) -> None:
    path = detector.client.target.well_known
    response = detector.client.send(replace(detector.client.new_request(lines=()), method="GET", path=path, body=None))
    require(response.succeeded, f"{path} is answered {response}")
    require(isinstance(response.json, dict), f"{path} is not a JSON object")
    require(any(_is_retention(*member) for member in _all_members(response.json)), f"{path} does not say how long")


INVALID, CHANGED, MISSING = "an invalid key", "another body", "a missing key"
DUPLICATE = "a duplicate in flight"


def _refusals(detector: ExecutionDetector) -> dict[str, TargetResponse]:
    found = detector.client.found_once("refusals", lambda: _refuse(detector.client))
    if not found:
        raise NotShown("nothing was refused")
    return found


def _refuse(client: TargetClient) -> dict[str, TargetResponse]:
    """Provoke each kind of refusal. Whether it must be refused is another check's business."""
    original = client.new_request()
    client.first(original)
    kinds = {INVALID: client.new_request(lines=client.raw_key(f"{client.key()} x".encode()))}
    with suppress(NotShown):
        kinds[CHANGED] = client.changed(original)
    if client.expected.key_required:
        kinds[MISSING] = client.new_request(lines=())
    refused = {}
    for name, one in kinds.items():
        with suppress(NoTargetResponse):
            response = client.again(one)
            if 400 <= response.status < 500:
                refused[name] = response
    return refused


def _link(response: TargetResponse) -> str | None:
    kind = response.json.get("type") if isinstance(response.json, dict) else None
    if isinstance(kind, str) and kind != BLANK and not kind.startswith("urn:"):
        return kind
    for part in (response.header("Link") or "").split(","):
        if (match := re.match(r"\s*<([^>]*)>(.*)", part)) and "describedby" in match[2]:
            return match[1]
    return None


def _fetched(client: TargetClient, link: str) -> TargetResponse:
    try:
        origin, path = read_url(urljoin(f"{client.target.origin}{client.target.request.path}", link))
    except (ConfigurationError, ValueError):
        raise NotShown("the link cannot be read") from None
    if origin != client.target.origin and not client.target.follow_links:
        raise NotShown(f"the link leads to {origin}; give --follow-links to ask there")
    try:
        # No credentials of ours: this is documentation, and may be somebody else's host.
        connection = client.opened(origin)
        connection.send(
            f"GET {path} HTTP/1.1\r\nHost: {origin.host_header}\r\nConnection: close\r\n\r\n".encode("ascii")
        )
        return connection.read_response("GET")
    except (TargetUnreachable, NoTargetResponse) as error:
        raise NotShown(f"the link was not answered: {error}") from None


def _all_members(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth < DEPTH_MAX and isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield str(name), inner
            yield from _all_members(inner, depth + 1)


def _is_retention(name: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return bool(RETENTION.search(name)) and (is_number or (isinstance(value, str) and bool(value)))


CHECKS = (problem_shape, stripe_shape, refusal_codes, problem_link, retention_published)
