"""
Profiles: what an API promises about keys, as one value. Each field can be overridden, for an app or for one route.

    profile("stripe")                               a named profile
    profile("stripe", require_key=True)             with changes
    Route("/refunds/{id}", guarantee="keyed")       with changes for one route

`onceward contract --profile NAME` prints one, and `/.well-known/idempotency` publishes the one in force.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Any, Literal, Unpack

from onceward._core.errors import ConfigurationError
from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward._core.resilience import ResiliencePart
from onceward._core.terms import AfterExpiry, Seconds
from onceward.http.server.profile_overrides import ProfileOverrides, RememberStatus

STORED_HEADERS = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "vary",
)
"""Response headers that are stored and replayed: those that describe it. Cookies and credentials never are."""

NEVER_STORED = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "date",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "server",
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)
"""Headers that `stored_headers` may not name: secrets, and what belongs to one connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an API promises about keys. Durations are seconds (or timedelta); None: the gate's own setting."""

    name: str = "default"
    """The profile's name in the published contract."""
    methods: tuple[str, ...] = ("POST", "PATCH", "PUT", "DELETE")
    """Methods whose requests may have a key. Others pass through untouched, with or without one."""
    require_key: bool = False
    """Whether a request with one of these methods, but without a key, is refused (400 `key_missing`)."""
    key_header: str = "Idempotency-Key"
    """The header that carries the key, bare or in quotation marks."""
    key_characters_max: int = KEY_CHARACTERS_MAX
    """The longest key; a longer one is refused, never shortened."""
    plans: bool = True
    """Whether `Plan-Key` and `Plan-Step` name a step."""
    plan_header: str = "Plan-Key"
    """The header that names the plan of a step."""
    step_header: str = "Plan-Step"
    """The header that names the step in its plan."""
    both: Literal["refuse", "plan"] = "refuse"
    """For a request with both a key and a step: 400 `ambiguous_identity`, or use the step."""
    in_flight: Literal["refuse", "wait", "accept"] = "refuse"
    """While the first request runs: 409 at once; wait for its response; or 202 with a code."""
    wait: Seconds = 30.0
    """With in_flight="wait": how long to wait before the 409."""
    pending_code: str = "pending"
    """With in_flight="accept": the code in the 202."""
    mismatch_status: int = 422
    """The status for a key that was used for a different request (`key_reused`)."""
    remember: RememberStatus = "success"
    """Which responses are stored. "success": those below 400; "4xx": also the 4xx, for handlers that may have committed
    before they refuse; "all"; or a function of the status. A 429 asks for a retry, so only a function can store it."""
    error_shape: Literal["problem", "stripe"] = "problem"
    """How refusals are written: as problem+json, or as Stripe's SDKs read them (`{"error": {...}}`)."""
    unscoped: Literal[401, 500, "pass"] = 401
    """For a keyed request whose caller is unknown: 401, 500, or pass it to the application as if it had no key."""
    replay_header: str = "Idempotency-Replayed"
    """The header that marks a replay (`true`); a first response does not have it."""
    plan_replay_header: str = "Plan-Replayed"
    """The header that marks the replay of a step of a plan (`true`)."""
    marker: Literal["header", "member", "envelope"] = "header"
    """Also mark a replay in the body, for agents that see no headers: with a member of the JSON object, or an envelope
    around it."""
    retain: Seconds | None = None
    """How long a response is replayed after it was stored."""
    tombstone: Seconds | None = None
    """How long after that a retry is refused (410 `expired`) and does not run again."""
    after_expiry: AfterExpiry | None = None
    """What happens to a retry after `retain`: `refuse`, or `run` (no tombstone: it runs again)."""
    fingerprint: Literal["canonical", "raw"] = "canonical"
    """How bodies are compared: JSON and forms by their content, or everything by its bytes."""
    fingerprint_headers: tuple[str, ...] = ()
    """Headers that are also compared, such as Accept or Stripe-Account."""
    stored_headers: tuple[str, ...] = STORED_HEADERS
    """Response headers that are stored and replayed. No others are."""
    body_bytes_max: int = 100 * 1024 * 1024
    """A longer request body is refused (413) before anything runs."""
    memory_bytes_max: int = 1024 * 1024
    """A longer request body is buffered in a temporary file, and longer JSON is compared by its bytes."""
    upload_seconds_max: float = 300.0
    """A body that has not arrived after this many seconds is refused (408); nothing was claimed for it."""
    guarantee: Literal["blind", "repeatable", "keyed", "probed", "atomic"] = "blind"
    """What a handler's failure means. blind: a 5xx or an exception leaves the key in doubt. atomic: it is released."""
    answer_first: bool = False
    """Store and send a response when it is complete, before the handler has returned. Background tasks then run after
    it, and the record says nothing about them. Do not use it if something commits after the response, such as code
    after FastAPI's `yield`."""
    transactional: bool = False
    """The handler settles inside its own database transaction; see "Settle inside your transaction"."""
    probe: Callable[..., Any] | None = None
    """With guarantee="probed": a function of the operation that returns Found(Reply(...)) or NOT_FOUND."""
    keyed_for: Seconds | None = None
    """With guarantee="keyed": how long the provider behind the handler honours a key."""
    lease: Seconds | None = None
    """How long a claim lasts without renewal; a running handler's claim is renewed."""
    lease_max: Seconds | None = None
    """How long a handler may hold its claim in all."""
    result_bytes_max: int | None = None
    """A longer response (headers and body) is sent once and not stored: the record says that it ran."""
    retry: ResiliencePart | None = None
    """A `Retry`: run a failed handler again, under the same claim, where the guarantee allows it. ASGI only."""
    breaker: ResiliencePart | None = None
    """A `Breaker`: while it is open, stored responses are replayed, and other requests get 503 `circuit_open`."""
    budget: ResiliencePart | None = None
    """A `Budget` for runs of a handler after a failed one; when it is used up, they get 503 `budget_exhausted`."""


PROFILES: Mapping[str, Profile] = {
    "default": Profile(),
    "ietf": Profile(name="ietf", methods=("POST", "PATCH"), require_key=True),
    "stripe": Profile(
        name="stripe",
        methods=("POST",),
        mismatch_status=400,
        remember="all",
        error_shape="stripe",
        replay_header="Idempotent-Replayed",
        after_expiry="run",
    ),
    "pacspace": Profile(
        name="pacspace",
        methods=("POST",),
        in_flight="accept",
        pending_code="IDEMPOTENCY_PENDING",
        mismatch_status=409,
    ),
    "persql": Profile(
        name="persql",
        key_characters_max=200,
        in_flight="wait",
        after_expiry="run",
    ),
}
"""The named profiles."""

_NAMES = frozenset(field.name for field in fields(Profile))
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "both": ("refuse", "plan"),
    "in_flight": ("refuse", "wait", "accept"),
    "error_shape": ("problem", "stripe"),
    "unscoped": (401, 500, "pass"),
    "marker": ("header", "member", "envelope"),
    "fingerprint": ("canonical", "raw"),
    "guarantee": ("blind", "repeatable", "keyed", "probed", "atomic"),
}
_SIZES = ("key_characters_max", "body_bytes_max", "memory_bytes_max")
_SWITCHES = ("require_key", "plans", "answer_first", "transactional")
_HEADERS = ("key_header", "plan_header", "step_header", "replay_header", "plan_replay_header")
_SEVERAL = ("methods", "fingerprint_headers", "stored_headers")
_WORD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CODE = re.compile(r"[A-Za-z0-9_.-]+")


def profile(base: str | Profile = "default", /, **changes: Unpack[ProfileOverrides]) -> Profile:
    """A profile by its name, with changes. `ConfigurationError` if they cannot work."""
    if isinstance(base, str):
        if base not in PROFILES:
            raise ConfigurationError(f"there is no profile {base!r}; choose one of {', '.join(PROFILES)}")
        base = PROFILES[base]
    unknown = sorted(set(changes) - _NAMES)
    if unknown:
        raise ConfigurationError(f"a profile has no field {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    if not isinstance(base, Profile):
        raise ConfigurationError(f"a profile must be a name or a Profile, not a {type(base).__name__}")
    return _checked(replace(base, **changes))


def _checked(made: Profile) -> Profile:
    _check_types(made)
    _check_sense(made)
    return replace(
        made,
        methods=tuple(method.upper() for method in made.methods),
        stored_headers=tuple(name.lower() for name in made.stored_headers),
        fingerprint_headers=tuple(sorted({name.lower() for name in made.fingerprint_headers})),
    )


def _check_types(made: Profile) -> None:
    for name, choices in _CHOICES.items():
        if getattr(made, name) not in choices:
            known = ", ".join(map(str, choices))
            raise ConfigurationError(f"{name} must be one of {known}, not {str(getattr(made, name))[:40]!r}")
    for name in _SIZES:
        if not _is_whole(getattr(made, name)):
            raise ConfigurationError(f"{name} must be a whole number above zero")
    for name in _SWITCHES:
        if not isinstance(getattr(made, name), bool):
            raise ConfigurationError(f"{name} must be True or False")
    for name in _HEADERS:
        if not _is_word(getattr(made, name)):
            raise ConfigurationError(
                f"{name} must be the name of a header, such as {getattr(PROFILES['default'], name)}"
            )
    for name in _SEVERAL:
        words = getattr(made, name)
        if isinstance(words, str):
            raise ConfigurationError(f"{name} must be a tuple: write ({words!r},)")
        if not (isinstance(words, tuple | list) and all(map(_is_word, words))):
            raise ConfigurationError(f"{name} must be a tuple of names, each of letters, digits and hyphens")
    if not (isinstance(made.pending_code, str) and _CODE.fullmatch(made.pending_code)):
        raise ConfigurationError("pending_code must be letters, digits and underscores: it becomes part of a URL")
    if not isinstance(made.name, str):
        raise ConfigurationError("the name of a profile must be a text")


def _is_whole(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def _is_word(word: object) -> bool:
    return isinstance(word, str) and _WORD.fullmatch(word) is not None


def _check_sense(made: Profile) -> None:
    if made.key_characters_max > KEY_CHARACTERS_MAX:
        raise ConfigurationError(f"key_characters_max must be at most {KEY_CHARACTERS_MAX}")
    if len({getattr(made, name).lower() for name in _HEADERS[:3]}) < 3:
        raise ConfigurationError("key_header, plan_header and step_header must be three different headers")
    if not (made.remember in ("success", "4xx", "all") or callable(made.remember)):
        raise ConfigurationError("remember must be 'success', '4xx', 'all' or a function of the status")
    if not (_is_whole(made.mismatch_status) and 400 <= made.mismatch_status <= 499):
        raise ConfigurationError("mismatch_status must be a status from 400 to 499")
    seconds: object = made.upload_seconds_max
    if isinstance(seconds, bool) or not (isinstance(seconds, int | float) and isfinite(seconds) and seconds > 0):
        raise ConfigurationError("upload_seconds_max must be a number of seconds above zero")
    if (made.guarantee == "probed") != (made.probe is not None):
        raise ConfigurationError("guarantee='probed' and probe=function go together: give both, or neither")
    if made.retry is not None and (made.answer_first or made.transactional):
        raise ConfigurationError("retry does not go with answer_first or transactional: leave retry out")
    if made.transactional and made.guarantee not in ("blind", "atomic"):
        raise ConfigurationError("a transactional route is atomic: leave guarantee out, or set guarantee='atomic'")
    secret = sorted(NEVER_STORED & {name.lower() for name in made.stored_headers})
    if secret:
        raise ConfigurationError(f"{secret[0]} is never stored: it is a secret, or belongs to one connection")
