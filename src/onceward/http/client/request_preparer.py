"""
Prepares a request before it is sent: its key, whether it may be retried, and under which policy.

    key          the caller's header, else extensions={"onceward": {"key": ...}}, else the client's `key(request)`,
                 else (for methods that are not safe to repeat) the running operation's downstream key. Never made up
    retried      if the method is safe to repeat (GET, PUT, DELETE ...) or has a key, and the body's bytes are known
    policy       the client's, or one per host with a breaker and a budget of its own

Nothing here knows a library or sends anything; the transports do.
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
"""The header that carries the key, unless another is given."""

CAPTURED_BYTES_MAX: Final = 8 * 1024 * 1024
"""A form with files up to this size is kept in memory for retries; a longer one is sent once."""

HOSTS_MAX: Final = 1_024
"""How many hosts' policies a client keeps; the least recently used is dropped first."""

EXTENSION = "onceward"
_ORIGIN = "onceward.origin"
_REQUEST_OPTIONS = frozenset({"key", "name", "part", "safe", "whole"})

KEPT_HEADERS: Final = frozenset({"accept", "content-type", "plan-key", "plan-step"})
"""The headers that a dead letter keeps, besides the key's. Others may hold credentials."""

INTERRUPTIONS: Final = (KeyboardInterrupt, SystemExit, CancelledError)
"""Raised when the caller does not wait for a response any more."""

KeyFunction = Callable[[Any], str | None]
PolicyFunction = Callable[[str], Retry]


class SendOptions(TypedDict, total=False):
    """How requests are sent: the same for every library."""

    key: KeyFunction | None
    """A function from a request to its key, or None: for requests without a key of their own."""
    require_key: bool
    """Refuse a request that is not safe to repeat and has no key (`KeyMissing`), before it is sent."""
    header: str
    """The header with the key."""
    quoted: bool
    """Send the key as a structured field's string, in quotation marks, as in the IETF draft."""
    profile: str | None
    """The provider for which the running operation's key is made (`operation.downstream_key`); None: do not use it."""
    whole: bool
    """Read successful responses to their end within the attempt, so that one that breaks off is retried, too."""
    send_deadline: bool
    """Send the time that is left (`Onceward-Timeout-Ms`)."""
    raise_rate_limit: bool
    """Raise `RateLimitError` instead of returning a 429 that is not (or no longer) retried."""


class TransportOptions(SendOptions, total=False):
    """The options of a transport or an adapter."""

    environment: str | None
    """`live` or `test`: becomes part of keys, and credentials for the other one are refused."""


class ClientOptions(SendOptions, total=False):
    """The options of `client(...)`."""

    api_key: str
    """The credential, sent as a bearer token. Default: from the environment variable."""
    api_key_variable: str
    max_retries: int
    """Attempts after the first. Default: 2."""
    timeout: float
    """Seconds per attempt; less if less is left. Default: 30."""
    base_url: str


class OutgoingRequest(NamedTuple):
    """A request, as a transport sees it."""

    request: Any
    method: str
    origin: tuple[str, str, int | None]
    url: str
    headers: Mapping[str, str]
    """By lower-case name; several of one name are joined with commas."""
    options: Mapping[str, Any]
    """The caller's options for this request alone."""
    first_origin: tuple[str, str, int | None]
    """Where it was sent before it was redirected."""
    body: bytes | None
    """Its bytes, if they are known."""


class SendTerms(NamedTuple):
    """How a request is sent."""

    policy: Retry
    key: str | None
    field: str | None
    """The value of the key's header; None: there is no such header."""
    whole: bool


class RequestPreparer:
    """The options of one client, checked; it decides how each of its requests is sent."""

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
            raise ConfigurationError("retry must be a Retry policy, or a function from a host's name to one")
        if key is not None and not callable(key):
            raise ConfigurationError(
                "key must be a function of the request: with one key for every request, all of them would be one "
                "operation"
            )
        if profile is not None and profile not in PROFILES:
            raise ConfigurationError(f"profile must be one of {', '.join(PROFILES)}, or None")
        flags = {"require_key": require_key, "quoted": quoted, "whole": whole}
        flags |= {"send_deadline": send_deadline, "raise_rate_limit": raise_rate_limit}
        for name, flag in flags.items():
            if not isinstance(flag, bool):
                raise ConfigurationError(f"{name} must be True or False")
        self._retry = retry
        self._key, self._require_key, self._quoted, self._profile = key, require_key, quoted, profile
        self.header = check_key(header)
        self.lower = self.header.lower()
        self.replaced = frozenset({self.lower, DEADLINE_HEADER.lower()} if send_deadline else {self.lower})
        """Headers of the caller that are left out: they are written anew for every attempt."""
        self.environment = check_environment(environment)
        self.whole, self.send_deadline, self.raise_rate_limit = whole, send_deadline, raise_rate_limit
        self._policies: OrderedDict[str, Retry] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, outgoing: OutgoingRequest) -> SendTerms:
        """Decide how a request is sent. Raises if a key is required and missing, or a credential is wrong."""
        options = _checked_request_options(outgoing.options)
        credentials = credentials_in(outgoing.headers)
        if self.environment is not None:
            for credential in credentials:
                check_credential(credential, self.environment)
        safe = outgoing.method.upper() in SAFE_METHODS or options.get("safe", False)
        key, quoted = self._key_of(outgoing, options, safe=safe)
        if key is None and self._require_key and not safe:
            raise KeyMissing(
                f"a {outgoing.method.upper()} to {outgoing.origin[1]} has no key, so a retry would not be safe; "
                f"nothing was sent. Set the header {self.header}, give the client key=, or send it from a function "
                "that a gate runs"
            )
        policy = self._policy_for(outgoing.origin)
        policy = policy.bind(
            key=key,
            method=outgoing.method,
            safe=True if safe else None,
            replayable=outgoing.body is not None,
            credential=credential_alias(credentials),
            failed=is_failure if policy.failed is None else _is_failure_or(policy.failed),
            name=f"{outgoing.method.upper()} {outgoing.origin[1]}",
        )
        field = None if key is None else _quote(key) if quoted else key
        if policy.dead is not None:
            # Called only if the request is given up: the dead letter then holds what was sent, without credentials.
            policy = policy.bind(
                replayable=policy.replayable, request=lambda: self._sent_request(outgoing, safe, field)
            )
        return SendTerms(policy, key, field, options.get("whole", self.whole))

    def _sent_request(self, outgoing: OutgoingRequest, safe: bool, field: str | None) -> SentRequest:
        headers = {name: value for name, value in outgoing.headers.items() if name in KEPT_HEADERS}
        if field is not None:
            headers[self.header] = field
        # A key or a step is remembered for a limited time; what is safe without either is safe whenever it is sent.
        for_good = safe and field is None and "plan-key" not in headers
        return SentRequest(
            outgoing.method.upper(), outgoing.url, headers, outgoing.body, for_good, outgoing.options.get("name")
        )

    def attempt_headers(self, send_terms: SendTerms) -> dict[str, str]:
        """The headers of one attempt. Called for each: the time that is left changes."""
        found = {} if send_terms.field is None else {self.header: send_terms.field}
        return found | deadline_header(environment=send_terms.policy.environment) if self.send_deadline else found

    def _key_of(self, outgoing: OutgoingRequest, options: Mapping[str, Any], *, safe: bool) -> tuple[str | None, bool]:
        """The key, and whether it is sent in quotation marks."""
        if outgoing.first_origin != outgoing.origin:
            return None, False  # Redirected to another host, which must not see our keys.
        given = outgoing.headers.get(self.lower)
        if given is not None:
            key, was_quoted = _unquoted(given)
            return self._named(key), self._quoted or was_quoted
        given_key: str | None = options.get("key")
        if given_key is None and self._key is not None:
            given_key = self._key(outgoing.request)
        if given_key is not None:
            return self._named(given_key), self._quoted
        operation = None if safe or self._profile is None else current_operation(None)
        if operation is None or self._profile is None:
            return None, False
        return self._from(operation, self._profile, outgoing, options), self._quoted

    def _named(self, key: str) -> str:
        return check_key(key) if self.environment is None else environment_key(self.environment, key)

    def _from(self, operation: Operation, profile: str, outgoing: OutgoingRequest, options: Mapping[str, Any]) -> str:
        """The running operation's key, for one request only: it names one effect."""
        environment = operation.scope.partition(":")[0]
        if self.environment is not None and environment in ENVIRONMENTS and environment != self.environment:
            raise ConfigurationError(
                f"the operation belongs to the {environment} environment and this client to {self.environment}; "
                "nothing was sent"
            )
        part = options.get("part", "")
        identity = sha256(length_prefixed(part) + operation.id).digest() if part else operation.id
        request = sha256(
            b"".join((length_prefixed(outgoing.method), length_prefixed(outgoing.url), outgoing.body or b""))
        ).digest()
        with _requests_by_operation_lock:
            first = _requests_by_operation.setdefault(operation, {}).setdefault((outgoing.origin, part), request)
        if first != request:
            raise KeyReused(
                "this operation has already sent another request under its key, so this one was not sent: one key "
                'names one effect. Name the parts: extensions={"onceward": {"part": "invoice"}}, or give each its own '
                "key"
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
                    raise ConfigurationError("the function given as retry= must return a Retry policy")
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
    Where a request was first sent: noted in its extensions, which a redirected request inherits.

    A key may reveal something about the caller's business; only the host that it was meant for may see it.
    """
    found: tuple[str, str, int | None] = extensions.setdefault(_ORIGIN, origin)
    return found


def request_options_in(extensions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The caller's options for this request alone."""
    options = extensions.get(EXTENSION)
    return {} if options is None else options


def merged_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; several of one name are joined with commas."""
    found: dict[str, str] = {}
    for name, value in pairs:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def capped_timeouts(timeouts: Mapping[str, float | None] | None, seconds: float) -> dict[str, float]:
    """The caller's timeouts, none longer than the attempt's."""
    given = timeouts or {}
    names = ("connect", "read", "write", "pool")
    return {name: seconds if (own := given.get(name)) is None else min(own, seconds) for name in names}


def _checked_request_options(options: Any) -> Mapping[str, Any]:
    if not isinstance(options, Mapping) or not set(options) <= _REQUEST_OPTIONS:
        raise ConfigurationError(
            f'extensions={{"onceward": ...}} must be a dict with some of {", ".join(sorted(_REQUEST_OPTIONS))}; '
            "nothing was sent"
        )
    for name in ("safe", "whole"):
        if not isinstance(options.get(name, False), bool):
            raise ConfigurationError(f"{name} must be True or False; nothing was sent")
    if not isinstance(options.get("name", ""), str):
        raise ConfigurationError("name must be text that a dead letter calls this request by, if it has no key")
    if not isinstance(options.get("part", ""), str):
        raise ConfigurationError("part must be text that names this request within its operation, such as invoice")
    return options


def _is_failure_or(failed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a response is a failure to every client, or to this policy."""
    return lambda response: is_failure(response) or failed(response)


def _quote(key: str) -> str:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquoted(field: str) -> tuple[str, bool]:
    """The key in a header, and whether it was in quotation marks."""
    if not field.startswith('"'):
        return field, False
    try:
        members = parse_list(field)
    except Malformed:
        members = []
    if len(members) != 1 or type(members[0].value) is not str or members[0].parameters:
        raise KeyInvalid("the key's header begins with a quotation mark and is not a quoted string; nothing was sent")
    return members[0].value, True
