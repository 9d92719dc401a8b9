"""
A small API that keeps the promises of each profile, or breaks one of them on request.

Real threads, real sockets, the standard library, and nothing of ours: what the suite says about it is the suite's own
judgement. A fault is a name; the places where it acts say `fault(...)`.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

JSON, PROBLEM = "application/json", "application/problem+json"
HOLD_SECONDS = 0.4


class Profile(NamedTuple):
    """What differs between the profiles."""

    required: bool = False
    longest: int = 255
    in_flight: int = 409
    mismatch: int = 422
    remember_failures: bool = False
    marker: str = "Idempotency-Replayed"
    stripe_errors: bool = False
    plans: bool = False
    waits: bool = False


PROFILES = {
    "default": Profile(),
    "ietf": Profile(required=True),
    "stripe": Profile(mismatch=400, remember_failures=True, marker="Idempotent-Replayed", stripe_errors=True),
    "pacspace": Profile(in_flight=202, mismatch=409),
    "persql": Profile(longest=200, plans=True, waits=True),
}
RETRY = {"in_flight": "same-key", "pending": "same-key", "key_reused": "new-key"}


class Reply(NamedTuple):
    """An answer."""

    status: int
    body: bytes = b""
    kind: str | None = JSON
    more: tuple[tuple[str, str], ...] = ()
    chunked: bool = False


class Refusal(Exception):
    """A request that is not run, and why."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code


class Record:
    """One key: what it was used for, and the answer once there is one."""

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self.reply: Reply | None = None
        self.state = "in_flight"
        self.answered_at = inf


class Api:
    """The promises, apart from HTTP."""

    def __init__(self, profile: str = "default", fault: str | None = None, hold: float = HOLD_SECONDS) -> None:
        self.hold = hold
        self.name, self.profile, self._fault = profile, PROFILES[profile], fault
        self.records: dict[tuple[str, str], Record] = {}
        self.repaired: set[object] = set()
        self.runs = 0
        self.numbers = count(1)
        self.guard = threading.Lock()
        self.here = threading.local()

    def fault(self, *names: str) -> bool:
        return self._fault in names

    def answer(self, method: str, path: str, headers: Any, body: bytes, is_gone: Callable[[], bool]) -> Reply:
        """What a request is answered with."""
        try:
            if method in ("GET", "HEAD", "OPTIONS"):
                return self._read(path, headers)
            found = self._identity(headers)
            tenant = headers.get("Authorization", "")
            if found is None and self.fault("unkeyed-deduplicated"):
                found = ("unkeyed", self.profile.marker)
            fingerprint = self._fingerprint(path, body)
            if found is None or (self.fault("large-bypassed") and len(body) > 2**20):
                return self._run(path, body)
            key, marker = found
            is_shared = self.fault("tenants-shared") or (self.fault("plans-shared") and marker == "Plan-Replayed")
            reply = self._keyed(("" if is_shared else tenant, key), marker, fingerprint, path, body, is_gone)
            return self._leaking(reply, tenant, key)
        except Refusal as refusal:
            return self._refused(refusal)

    def _read(self, path: str, headers: Any) -> Reply:
        if self.fault("get-compared") and headers.get("Idempotency-Key") in {key for _, key in self.records}:
            raise Refusal(422, "key_reused")
        if path == "/count":
            return Reply(200, json.dumps({"runs": self.runs}).encode())
        if path == "/.well-known/idempotency" and not self.fault("unpublished"):
            published = {} if self.fault("retention-unsaid") else {"retentionSeconds": 86400}
            return Reply(200, json.dumps({"profile": self.name, **published}).encode())
        if path.startswith("/problems/") and not self.fault("dead-link"):
            return Reply(200, b"what it means", "text/plain")
        raise Refusal(405 if path == "/orders" else 404, "no_such_thing")

    def _identity(self, headers: Any) -> tuple[str, str] | None:
        """The name of the operation, and the marker of its replays."""
        given = headers.get_all("Idempotency-Key") or []
        plan = [headers.get(name) for name in ("Plan-Key", "Plan-Step")]
        if self.profile.plans and any(plan):
            if given and not self.fault("plan-wins"):
                raise Refusal(400, "ambiguous_identity")
            if not all(plan) and not self.fault("half-a-plan"):
                raise Refusal(400, "plan_incomplete")
            named = plan[:1] if self.fault("steps-alike") else plan
            marker = "Idempotency-Replayed" if self.fault("plan-marker") else "Plan-Replayed"
            return json.dumps(named), marker
        if not given:
            if self.profile.required and not self.fault("key-optional"):
                raise Refusal(400, "key_missing")
            return None
        if len(given) > 1 and not self.fault("first-key-wins"):
            raise Refusal(400, "key_invalid")
        key = given[0]
        if len(key) > 1 and key[0] == key[-1] == '"' and not self.fault("quotes-matter"):
            key = key[1:-1]
        if not key and self.fault("empty-key-ignored"):
            return None
        longest = 64 if self.fault("short-keys-only") else self.profile.longest
        too_long = len(key) > longest and not self.fault("long-keys-accepted")
        if not key or too_long:
            raise Refusal(400, "key_invalid")
        if not all("!" <= one <= "~" for one in key):
            if self.fault("odd-key-cuts"):
                raise ConnectionAbortedError
            raise Refusal(500 if self.fault("odd-key-breaks") else 400, "key_invalid")
        if self.fault("case-folded"):
            key = key.lower()
        return (key[:64] if self.fault("key-truncated") else key), self.profile.marker

    def _fingerprint(self, path: str, body: bytes) -> bytes:
        value = self._parsed(body)
        if self.fault("query-ignored"):
            path = path.partition("?")[0]
        elif self.fault("path-ignored"):
            path = path.partition("?")[2]
        if self.fault("raw-bytes"):
            return path.encode() + body
        return json.dumps([path, value], sort_keys=True).encode()

    def _parsed(self, body: bytes) -> Any:
        def once(members: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(dict(members)) != len(members) and not self.fault("json-lenient"):
                raise ValueError("a member occurs twice")
            return dict(members)

        def refused(_: str) -> None:
            if not self.fault("json-lenient"):
                raise ValueError("not a number")

        try:
            value = json.loads(body, object_pairs_hook=once, parse_constant=refused)
            if not self.fault("json-lenient"):
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Refusal(500 if self.fault("surrogate-breaks") else 400, "request_invalid") from None
        except ValueError:
            if self.fault("unfinished-accepted") and not body.endswith(b"}"):
                return None
            raise Refusal(400, "request_invalid") from None
        return value

    def _keyed(
        self,
        place: tuple[str, str],
        marker: str,
        fingerprint: bytes,
        path: str,
        body: bytes,
        is_gone: Callable[[], bool],
    ) -> Reply:
        with self.guard:
            record = self.records.get(place)
            if record and (self.fault("runs-again") or (self.fault("claims-late") and self._came_early(record))):
                record = None
            if record is None:
                mine = self.records[place] = Record(fingerprint)
        if record is None:
            return self._first(place, mine, path, body, is_gone)
        if record.fingerprint != fingerprint and not self.fault("fingerprint-forgotten"):
            if self.fault("mismatch-forgets"):
                del self.records[place]
            raise Refusal(409 if self.fault("mismatch-409") else self.profile.mismatch, "key_reused")
        if record.reply is None:
            if self.fault("in-flight-hangs") and path == "/slow":
                threading.Event().wait(3)
            waits = self.profile.waits and not self.fault("in-flight-refused")
            if (self.fault("in-flight-waits") and path == "/slow") or waits:
                while record.reply is None and self.records.get(place) is record and record.state == "in_flight":
                    threading.Event().wait(0.01)
            if record.reply is None:
                raise Refusal(self.profile.in_flight if record.state == "in_flight" else 409, record.state)
        return self._replayed(record.reply, marker)

    def _came_early(self, record: Record) -> bool:
        """Whether this request was on its way before the first one's answer was recorded."""
        return record.state == "in_flight" and self.here.opened < record.answered_at

    def _first(
        self, place: tuple[str, str], record: Record, path: str, body: bytes, is_gone: Callable[[], bool]
    ) -> Reply:
        reply = self._run(path, body)
        if self.fault("claims-late"):
            threading.Event().wait(0.2)  # So that a crowd meets it, on a machine of any speed.
        record.answered_at = monotonic()
        keeps = self.profile.remember_failures
        if reply.status >= 500 and not (keeps and not self.fault("failures-forgotten")):
            record.state = "in_doubt"
            if self.fault("5xx-frees", "failures-forgotten"):
                del self.records[place]
            if self.fault("5xx-sticks"):
                record.state = "in_flight"
        elif 400 <= reply.status < 500 and not (keeps and not self.fault("failures-forgotten")):
            if self.fault("4xx-remembered"):
                record.reply = reply
            elif not self.fault("4xx-sticks"):
                del self.records[place]
        elif not (reply.status == 204 and self.fault("204-not-kept")) and not (
            reply.chunked and self.fault("stream-not-kept")
        ):
            record.reply = reply
        else:
            del self.records[place]
        if (self.fault("cut-frees") and path == "/slow" and is_gone()) or self.fault("runs-again"):
            self.records.pop(place, None)
        return reply._replace(more=((self.profile.marker, "false"),)) if self.fault("first-marked-false") else reply

    def _replayed(self, reply: Reply, marker: str) -> Reply:
        if self.fault("content-type-lost") and reply.body:
            reply = reply._replace(kind=None)
        if self.fault("status-200"):
            reply = reply._replace(status=200)
        if self.fault("body-respelled") and reply.kind == JSON:
            reply = reply._replace(body=reply.body.replace(b": ", b":"))
        value = "false" if self.fault("replay-marked-false") else "true"
        return reply if self.fault("marker-missing") else reply._replace(more=((marker, value),))

    def _leaking(self, reply: Reply, tenant: str, key: str) -> Reply:
        is_known = any(other == key and scope != tenant for scope, other in list(self.records))
        if is_known and self.fault("header-tells"):
            return reply._replace(more=(*reply.more, ("X-Key", "seen")))
        if is_known and self.fault("time-tells"):
            threading.Event().wait(0.5)  # Far more than a busy machine adds by chance.
        return reply

    def _run(self, path: str, body: bytes) -> Reply:
        """The work itself."""
        with self.guard:
            self.runs += 1
            number = next(self.numbers)
        sent = self._parsed(body) or {}
        if path == "/slow":
            threading.Event().wait(self.hold)
        if path == "/repair":
            self.repaired.add(sent.get("n"))
        if path == "/broken":
            return Reply(500, json.dumps({"error": "broken"}).encode())
        if path == "/refused" and sent.get("n") not in self.repaired:
            return Reply(404, json.dumps({"error": "no such item"}).encode())
        if path == "/nothing":
            return Reply(204, kind=None)
        answer = json.dumps({"id": number, "got": sent}).encode()
        return Reply(201, answer, chunked=True) if path == "/stream" else Reply(201, answer)

    def _refused(self, refusal: Refusal) -> Reply:
        status, code = refusal.status, refusal.code
        if code == "in_flight" and status == 202:
            body: dict[str, Any] = {} if self.fault("pending-unsaid") else {"code": "pending"}
            body |= {} if self.fault("pending-unsaid", "wait-unsaid") else {"retryAfterSeconds": 1}
            return Reply(202, json.dumps(body).encode())
        if code == "in_flight" and self.fault("in-flight-423"):
            status = 423
        said = "nope" if self.fault("other-codes") and code.startswith("key_") else code
        advice = {} if self.fault("advice-missing") else {"retry": RETRY.get(code, "never")}
        link = "about:blank" if self.fault("link-missing") else f"/problems/{code}"
        body = {"type": link, "title": code.replace("_", " "), "status": status, "code": said, **advice}
        wait = (("Retry-After", "soon" if self.fault("retry-after-words") else "1"),) if code == "in_flight" else ()
        if self.profile.stripe_errors and not self.fault("stripe-errors-as-problems"):
            kind = "idempotency_error" if code in ("key_reused", "in_flight") else "invalid_request_error"
            kind = "card_error" if self.fault("stripe-type-other") else kind
            body = {"error": {"type": kind, "message": code.replace("_", " "), "code": code}}
            return Reply(status, json.dumps(body).encode(), JSON, wait)
        return Reply(status, json.dumps(body).encode(), JSON if self.fault("plain-errors") else PROBLEM, wait)


class Handler(BaseHTTPRequestHandler):
    """HTTP for an `Api`."""

    protocol_version = "HTTP/1.1"
    api: Api

    def setup(self) -> None:
        self.opened = monotonic()
        super().setup()

    def do_POST(self) -> None:
        self.api.here.opened = self.opened
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            reply = self.api.answer(self.command, self.path, self.headers, body, self.is_gone)
        except ConnectionAbortedError:
            self.close_connection = True
            return
        lines = [f"HTTP/1.1 {reply.status} -", *(f"{name}: {value}" for name, value in reply.more)]
        lines += [f"Content-Type: {reply.kind}"] if reply.kind else []
        lines += ["Connection: close"]
        if reply.chunked:
            lines += ["Transfer-Encoding: chunked"]
            middle = len(reply.body) // 2
            payload = b"".join(
                b"%x\r\n%s\r\n" % (len(one), one) for one in (reply.body[:middle], reply.body[middle:], b"")
            )
        else:
            lines += [] if reply.status == 204 else [f"Content-Length: {len(reply.body)}"]
            payload = b"" if self.command == "HEAD" else reply.body
        data = "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + payload
        is_first = reply.status < 300 and not reply.more
        if self.api.fault("unread-forgotten") and is_first and self.path != "/slow":
            self.write_and_then_settle(data)
        else:
            self.wfile.write(data)
        self.close_connection = True

    def write_and_then_settle(self, data: bytes) -> None:
        """The fault of recording an answer once it was delivered: it is forgotten if nobody took it."""
        records = self.api.records
        mine = {place: one.reply for place, one in records.items() if place[1] == self.headers["Idempotency-Key"]}
        for place in mine:
            records[place].reply = None
        try:
            self.wfile.write(data)
            self.connection.shutdown(socket.SHUT_WR)
            is_taken = not self.is_gone(wait=True)
        except OSError:
            is_taken = False
        for place, kept in mine.items():
            if is_taken:
                records[place].reply = kept
            else:
                del records[place]

    do_GET = do_HEAD = do_OPTIONS = do_DELETE = do_POST  # noqa: N815 - the names that http.server calls

    def is_gone(self, wait: bool = False) -> bool:
        """Whether the client has cut the connection."""
        try:
            self.connection.recv(1, socket.MSG_PEEK if wait else socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    def log_message(self, *_: object) -> None:
        """Tests speak for themselves."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Clients that cut connections are what this is for."""


@contextmanager
def serving(
    profile: str = "default",
    fault: str | None = None,
    hold: float = HOLD_SECONDS,
    kind: type[Api] = Api,
    tls: ssl.SSLContext | None = None,
) -> Iterator[tuple[str, Api]]:
    """An API that listens; its address, and itself."""
    api = kind(profile, fault, hold)
    server = _Server(("127.0.0.1", 0), type("Bound", (Handler,), {"api": api}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}", api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fault_names() -> set[str]:
    """Every fault that this file knows, as it is written."""
    calls = re.findall(r"fault\(([^)]*)\)", Path(__file__).read_text(encoding="utf-8"))
    return {name for call in calls for name in re.findall(r'"([a-z0-9-]+)"', call)}


DESCRIPTION: dict[str, Any] = {
    "body": '{"n": {n}, "what": "tea"}',
    "unique": "/id",
    "other_path": "/refunds",
    "headers": {"Authorization": "Bearer one"},
    "other_headers": {"Authorization": "Bearer two"},
    "slow": {"path": "/slow"},
    "fail_4xx": {"path": "/refused"},
    "repair": {"path": "/repair"},
    "fail_5xx": {"path": "/broken"},
    "stream": {"path": "/stream"},
    "no_content": {"path": "/nothing"},
    "timeout": 5,
}
"""Everything that the suite can be told about it."""
