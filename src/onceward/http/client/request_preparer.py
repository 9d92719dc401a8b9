"""
What is decided about a request before it is sent: its key, whether it may be sent again, and under which policy.

    key          the caller's header, else extensions={"onceward": {"key": ...}}, else the client's `key(request)`,
                 else (for methods that are not safe by nature) the running operation's downstream key. Never invented
    again?       safe by nature (GET, PUT, DELETE ...) or keyed, and a body of which the bytes are at hand
    policy       the client's, or one per host with a breaker and a budget of its own

Nothing here knows a library or acts. The transports hand in what they see, and do what comes out.
"""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypedDict
from weakref import WeakKeyDictionary

from onceward._core.downstream_keys import PROFILES, downstream_key
from onceward._core.errors import ConfigurationError, KeyInvalid, KeyMissing, KeyReused
from onceward._core.keys import ENVIRONMENTS, check_key, environment_key, length_prefixed
from onceward._core.operation import Operation
from onceward._core.sent_request import SentRequest
from onceward._core.structured_fields import Malformed, parse_list
from onceward.gate.running_operation import current_operation
from onceward.http.client.credentials import (
    check_credential,
    check_environment,
    credential_alias,
    credentials_in,
)
from onceward.http.client.responses import is_failure
from onceward.retry.breaker import Breaker
from onceward.retry.budget import Budget
from onceward.retry.call_context import DEADLINE_HEADER, deadline_header
from onceward.retry.policy import SAFE_METHODS, Retry

KEY_HEADER = "Idempotency-Key"

CAPTURED_BYTES_MAX: Final = 8 * 1024 * 1024
"""How much of a form with files is kept in memory to be sent again; a longer one is sent once."""

HOSTS_MAX: Final = 1_024
"""Policies of hosts that a client remembers, where it makes them itself; the one not used for longest goes first."""

EXTENSION = "onceward"
_ORIGIN = "onceward.origin"
_REQUEST_OPTIONS = frozenset({"key", "name", "part", "safe", "whole"})

KEPT_HEADERS: Final = frozenset({"accept", "content-type", "plan-key", "plan-step"})
"""What a dead letter keeps of a request's headers, besides the key's. Others may hold credentials."""

INTERRUPTIONS: Final = (KeyboardInterrupt, SystemExit, CancelledError)
"""Whoever asked wants no answer any more."""

KeyFunction = Callable[[Any], str | None]
PolicyFunction = Callable[[str], Retry]


class SendOptions(TypedDict, total=False):
    """How requests are sent: the same for every library."""

    key: KeyFunction | None
    """From a request to its key, or None: for requests that do not bring one themselves."""
    require_key: bool
    """Refuse a request that is not safe by nature and has no key (`KeyMissing`), before it is sent."""
    header: str
    """The header that the key travels in."""
    quoted: bool
    """Send the key as a structured field's string, in quotation marks, as the IETF draft has it."""
    profile: str | None
    """For which provider the running operation's key is made (`operation.downstream_key`); None: do not take it."""
    whole: bool
    """Read good answers to their end within the attempt, so that one that breaks off is tried again, too."""
    send_deadline: bool
    """Send the time that is left along (`Onceward-Timeout-Ms`)."""
    raise_rate_limit: bool
    """Raise `RateLimitError` in place of returning a 429, when it is not (or no longer) retried."""


class TransportOptions(SendOptions, total=False):
    """What may be said about a transport or an adapter."""

    environment: str | None
    """`live` or `test`: keys carry it, and credentials of the other one are refused."""


class ClientOptions(SendOptions, total=False):
    """What may be said about a client that is made ready to use."""

    api_key: str
    """The credential, sent as a bearer token. From the environment variable unless given."""
    api_key_variable: str
    max_retries: int
    """Attempts after the first: 2."""
    timeout: float
    """Seconds per attempt: 30; less if less is left."""
    base_url: str


class OutgoingRequest(NamedTuple):
    """A request, as a transport sees it."""

    request: Any
    method: str
    origin: tuple[str, str, int | None]
    url: str
    headers: Mapping[str, str]
    """By lower-case name; several of one name are joined, as HTTP has it."""
    said: Mapping[str, Any]
    """What the caller said about this request alone."""
    first_origin: tuple[str, str, int | None]
    """Where it was going before it was redirected."""
    body: bytes | None
    """Its bytes, if they are at hand."""


class SendTerms(NamedTuple):
    """What was decided about a request."""

    policy: Retry
    key: str | None
    field: str | None
    """The key's header as it is sent; None: no such header is sent."""
    whole: bool


class RequestPreparer:
    """The terms of one client, checked; and from a request to what is to be done about it."""

    def __init__(
        self,
        retry: Retry | PolicyFunction | None = None,
        *,
        key: KeyFunction | None = None,
        require_key: bool = False,
        header: str = KEY_HEADER,
        quoted: bool = False,
        profile: str | None = "stripe",
        environment: str | None = None,
        whole: bool = False,
        send_deadline: bool = True,
        raise_rate_limit: bool = False,
    ) -> None:
        if retry is not None and not callable(retry):
            raise ConfigurationError("retry is a Retry policy, or a function from a host's name to one")
        if key is not None and not callable(key):
            raise ConfigurationError(
                "key is a function of the request; one key for every request would make all of them one operation"
            )
        if profile is not None and profile not in PROFILES:
            raise ConfigurationError(f"profile is one of {', '.join(PROFILES)}, or None")
        flags = {"require_key": require_key, "quoted": quoted, "whole": whole}
        flags |= {"send_deadline": send_deadline, "raise_rate_limit": raise_rate_limit}
        for name, flag in flags.items():
            if not isinstance(flag, bool):
                raise ConfigurationError(f"{name} is True or False")
        self._retry = retry
        self._key, self._require_key, self._quoted, self._profile = key, require_key, quoted, profile
        self.header = check_key(header)
        self.lower = self.header.lower()
        self.replaced = frozenset({self.lower, DEADLINE_HEADER.lower()} if send_deadline else {self.lower})
        """Headers that are not the caller's to send on: they are written anew for every attempt."""
        self.environment = check_environment(environment)
        self.whole, self.send_deadline, self.raise_rate_limit = whole, send_deadline, raise_rate_limit
        self._policies: OrderedDict[str, Retry] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, seen: OutgoingRequest) -> SendTerms:
        """Decide about a request. Raises before anything is sent: no key where one is required, a wrong credential."""
        said = _checked_request_options(seen.said)
        credentials = credentials_in(seen.headers)
        if self.environment is not None:
            for credential in credentials:
                check_credential(credential, self.environment)
        safe = seen.method.upper() in SAFE_METHODS or said.get("safe", False)
        key, quoted = self._key_of(seen, said, safe=safe)
        if key is None and self._require_key and not safe:
            raise KeyMissing(
                f"a {seen.method.upper()} to {seen.origin[1]} has no key, so it could not be sent again safely; "
                f"nothing was sent. Set the header {self.header}, give the client key=, or send it from a function "
                "that a gate runs"
            )
        policy = self._policy_for(seen.origin)
        policy = policy.bind(
            key=key,
            method=seen.method,
            safe=True if safe else None,
            replayable=seen.body is not None,
            credential=credential_alias(credentials),
            failed=is_failure if policy.failed is None else _is_failure_or(policy.failed),
            name=f"{seen.method.upper()} {seen.origin[1]}",
        )
        field = None if key is None else _quote(key) if quoted else key
        if policy.dead is not None:
            # Asked only if it is given up: the letter then holds what was sent, but for its credentials.
            policy = policy.bind(replayable=policy.replayable, request=lambda: self._sent(seen, said, safe, field))
        return SendTerms(policy, key, field, said.get("whole", self.whole))

    def _sent(self, seen: OutgoingRequest, said: Mapping[str, Any], safe: bool, field: str | None) -> SentRequest:
        headers = {name: value for name, value in seen.headers.items() if name in KEPT_HEADERS}
        if field is not None:
            headers[self.header] = field
        # A key or a step is remembered for a while; what is safe without either is safe whenever it is sent.
        for_good = safe and field is None and "plan-key" not in headers
        return SentRequest(seen.method.upper(), seen.url, headers, seen.body, for_good, said.get("name"))

    def fields(self, cargo: SendTerms) -> dict[str, str]:
        """The headers of one attempt. Called inside of it: the time that is left changes."""
        found = {} if cargo.field is None else {self.header: cargo.field}
        return found | deadline_header(environment=cargo.policy.environment) if self.send_deadline else found

    def _key_of(self, seen: OutgoingRequest, said: Mapping[str, Any], *, safe: bool) -> tuple[str | None, bool]:
        """The key, and whether it is sent in quotation marks."""
        if seen.first_origin != seen.origin:
            return None, False  # Redirected to somebody else, who has no business with our keys.
        given = seen.headers.get(self.lower)
        if given is not None:
            key, was_quoted = _unquoted(given)
            return self._named(key), self._quoted or was_quoted
        spoken: str | None = said.get("key")
        if spoken is None and self._key is not None:
            spoken = self._key(seen.request)
        if spoken is not None:
            return self._named(spoken), self._quoted
        operation = None if safe or self._profile is None else current_operation(None)
        if operation is None or self._profile is None:
            return None, False
        return self._from(operation, self._profile, seen, said), self._quoted

    def _named(self, key: str) -> str:
        return check_key(key) if self.environment is None else environment_key(self.environment, key)

    def _from(self, operation: Operation, profile: str, seen: OutgoingRequest, said: Mapping[str, Any]) -> str:
        """The running operation's key for this request; for one request only, because it names one effect."""
        spoken = operation.scope.partition(":")[0]
        if self.environment is not None and spoken in ENVIRONMENTS and spoken != self.environment:
            raise ConfigurationError(
                f"the operation belongs to the {spoken} environment and this client to {self.environment}; "
                "nothing was sent"
            )
        part = said.get("part", "")
        identity = sha256(length_prefixed(part) + operation.id).digest() if part else operation.id
        request = sha256(b"".join((length_prefixed(seen.method), length_prefixed(seen.url), seen.body or b""))).digest()
        with _requests_by_operation_lock:
            first = _requests_by_operation.setdefault(operation, {}).setdefault((seen.origin, part), request)
        if first != request:
            raise KeyReused(
                "this operation has sent another request under its key, and one key names one effect; this one was "
                'not sent. Name the parts: extensions={"onceward": {"part": "invoice"}}, or give each its own key'
            )
        return downstream_key(identity, profile)

    def _policy_for(self, origin: tuple[str, str, int | None]) -> Retry:
        if isinstance(self._retry, Retry):
            return self._retry
        host = origin[1] if origin[2] is None else f"{origin[1]}:{origin[2]}"
        with self._lock:
            policy = self._policies.get(host)
            if policy is None:
                policy = (self._retry or _with_breaker)(host)
                if not isinstance(policy, Retry):
                    raise ConfigurationError("retry=function: it must return a Retry policy for a host")
                self._policies[host] = policy
            self._policies.move_to_end(host)
            if len(self._policies) > HOSTS_MAX:
                self._policies.popitem(last=False)
        return policy


_requests_by_operation: WeakKeyDictionary[Operation, dict[tuple[Any, str], bytes]] = WeakKeyDictionary()
_requests_by_operation_lock = threading.Lock()


def _with_breaker(host: str) -> Retry:
    return Retry(breaker=Breaker(f"http:{host}"[:100]), budget=Budget())


def first_origin(extensions: Any, origin: tuple[str, str, int | None]) -> tuple[str, str, int | None]:
    """
    Where a request was going at first: noted in its extensions, which a redirected request inherits.

    A key says something about the caller's business; only whom it was meant for gets to see it.
    """
    found: tuple[str, str, int | None] = extensions.setdefault(_ORIGIN, origin)
    return found


def request_options_in(extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the caller said about this request alone."""
    said = extensions.get(EXTENSION)
    return {} if said is None else said


def merged_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; several of one name are one, divided by commas."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def capped_timeouts(timeouts: Mapping[str, float | None] | None, seconds: float) -> dict[str, float]:
    """The caller's timeouts, none longer than what the attempt may take."""
    given = timeouts or {}
    names = ("connect", "read", "write", "pool")
    return {name: seconds if (own := given.get(name)) is None else min(own, seconds) for name in names}


def _checked_request_options(said: Any) -> Mapping[str, Any]:
    if not isinstance(said, Mapping) or not set(said) <= _REQUEST_OPTIONS:
        raise ConfigurationError(
            f'extensions={{"onceward": ...}} is a dict with some of {", ".join(sorted(_REQUEST_OPTIONS))}; nothing was '
            "sent"
        )
    for name in ("safe", "whole"):
        if not isinstance(said.get(name, False), bool):
            raise ConfigurationError(f"{name} is True or False; nothing was sent")
    if not isinstance(said.get("name", ""), str):
        raise ConfigurationError("name is text: what a dead letter calls this request, where it has no key")
    if not isinstance(said.get("part", ""), str):
        raise ConfigurationError("part is text: what this request is to its operation, such as invoice")
    return said


def _is_failure_or(failed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """What every client takes for a failure, and what this policy does besides."""
    return lambda response: is_failure(response) or failed(response)


def _quote(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(field: str) -> tuple[str, bool]:
    """The key in a header, and whether it stood in quotation marks."""
    if not field.startswith('"'):
        return field, False
    try:
        members = parse_list(field)
    except Malformed:
        members = []
    if len(members) != 1 or type(members[0].value) is not str or members[0].parameters:
        raise KeyInvalid("the key's header begins as a quoted string and is none; nothing was sent")
    return members[0].value, True
