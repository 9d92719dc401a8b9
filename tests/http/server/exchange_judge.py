"""
What an answer has to be, by itself, so that wires which are wrong in the same way do not pass: a refusal says what
every refusal says and nothing of this side, a replay is what is stored, and anything else is what the handler said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from exchange_handlers import SETTLED
from exchange_messages import OWN_500, Heard, Kept, Said

from onceward import Reply

OURS = (b"test:shop", b"till is stuck", b"store is away", b"tenant", b"onceward records")
"""What the log says, and no client is told."""


def wrong_in(heard: Heard, said: Sequence[Said], stored: Sequence[Kept]) -> str:
    """What is wrong with an answer; nothing, if it is empty."""
    if heard == OWN_500:
        return ""
    is_replay = any(name.endswith("-replayed") for name in heard.headers)
    inner, is_wrapped, wrong = _unwrapped(heard, is_replay=is_replay)
    refusal = _refusal(inner)
    if refusal is not None:
        wrong += _wrong_refusal(heard, refusal, inner)
    elif is_replay:
        kept = [one.result if isinstance(one.result, Reply) else _plain(one.result) for one in stored]
        if not any(_is(heard, inner, one, is_wrapped=is_wrapped, is_replay=True) for one in kept):
            wrong += " it is nothing that is stored"
    elif said and not _is_own(heard, inner, said, is_wrapped=is_wrapped):
        wrong += " it is nothing that the handler said"
    return wrong


def _unwrapped(heard: Heard, *, is_replay: bool) -> tuple[bytes, bool, str]:
    """The body without its envelope or its mark; whether it had one; and what is wrong with that."""
    if heard.body.startswith(b'{"replayed":'):
        found = heard.json
        is_right = (found["replayed"], found["status"]) == (is_replay, heard.status)
        # Of what has failed there is no first time.
        is_right = is_right and [*found] in (["replayed", "status", *then, "body"] for then in (["firstAt"], []))
        is_right = is_right and ("firstAt" in found or heard.status >= 500)
        return heard.body.partition(b',"body":')[2][:-1], True, "" if is_right else " the envelope is not true"
    mark = b',"idempotencyReplayed":true'
    is_marked = mark in heard.body
    wrong = "" if is_replay or not is_marked else " it is marked, and no replay"
    return heard.body.replace(mark, b""), is_marked, wrong


def _refusal(body: bytes) -> Any:
    """A refusal of ours, in either shape."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return found.get("error") if "error" in found else found if "code" in found and "retry" in found else None


def _wrong_refusal(heard: Heard, refusal: Any, body: bytes) -> str:
    wrong = [f"it tells {word!r}" for word in OURS if word in body]
    page = refusal.get("type") if "detail" in refusal else refusal.get("doc_url")
    is_problem = "detail" in refusal
    kind = "application/problem+json" if is_problem else "application/json"
    again = refusal["retry"] == "same-key"
    expected = {
        "content-type": kind,
        "cache-control": "no-store",
        "link": f'<{page}>; rel="help"',
        "content-length": str(len(heard.body)),
    }
    wrong += [name for name, value in expected.items() if heard.headers.get(name) != value]
    if is_problem:
        wrong += ["status in the body"] if refusal["status"] != heard.status else []
        seconds = refusal.get("retryAfterSeconds")
    else:
        wrong += ["should-retry"] if heard.headers.get("stripe-should-retry") != str(again).lower() else []
        seconds = refusal.get("retry_after_seconds")
    wrong += ["no time"] if again and seconds is None else []
    wrong += ["retry-after"] if ("retry-after" in heard.headers) != (seconds is not None) else []
    wrong += ["no words"] if not (refusal.get("detail") or refusal.get("message")) else []
    return " " + ", ".join(wrong) if wrong else ""


def _plain(value: Any) -> Reply:
    """What a person gave who decided, as it is answered."""
    if isinstance(value, bytes):
        return Reply(200, (("content-type", "application/octet-stream"),), value)
    return Reply(200, (("content-type", "application/json"),), json.dumps(value, separators=(",", ":")).encode())


def _is(heard: Heard, inner: bytes, reply: Reply, *, is_wrapped: bool, is_replay: bool) -> bool:
    """Whether an answer is this one, with all its headers, and no others than belong to it."""
    not_sent = {"set-cookie", "content-length", *(["etag"] if is_wrapped else [])}
    headers = {name: value for name, value in reply.headers if name not in not_sent}
    body = b"" if reply.status == 204 else reply.body
    headers |= {"content-length": str(len(heard.body))} if reply.status != 204 else {}
    found = {name: value for name, value in heard.headers.items() if not name.endswith("-replayed")}
    return (heard.status, found, inner) == (reply.status, headers, body) and is_replay == (found != heard.headers)


def _is_own(heard: Heard, inner: bytes, said: Iterable[Said], *, is_wrapped: bool) -> bool:
    if _is(heard, inner, SETTLED, is_wrapped=is_wrapped, is_replay=False):
        return True
    found = {name: value for name, value in heard.headers.items() if name != "idempotency-stored"}
    for one in said:
        headers = dict(one.head)
        if is_wrapped:
            headers = {name: value for name, value in headers.items() if name != "etag"}
            headers["content-length"] = str(len(heard.body))
        whole = one.body if one.pieces is None else b"".join(one.pieces)
        is_all = inner == whole or (one.pieces is not None and whole.startswith(inner))  # Who left has less of it.
        if (heard.status, found) == (one.status, headers) and is_all:
            return True
    return False
