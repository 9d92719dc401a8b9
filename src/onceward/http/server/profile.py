"""
A profile: what an API promises about keys, as one value. Each field can be overridden, for an app or for one route.

    profile("stripe")                       a named one
    profile("stripe", require_key=True)     the same, but
    Route("/refunds/{id}", guarantee="keyed", profile fields ...)

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
"""Headers of an answer that are stored and replayed: those that describe it. Cookies and credentials never are."""

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
"""Headers that no allow-list may name: secrets, and what belongs to one connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an API promises about keys. Durations are seconds (or timedelta); None: what the gate says."""

    name: str = "default"
    """What this profile is called, in what is published."""
    methods: tuple[str, ...] = ("POST", "PATCH", "PUT", "DELETE")
    """Methods whose requests may carry a key. Others pass through untouched, whatever they carry."""
    require_key: bool = False
    """Whether a request with one of these methods and without a key is refused (400 `key_missing`)."""
    key_header: str = "Idempotency-Key"
    """The header that carries the key, bare or in quotation marks."""
    key_characters_max: int = KEY_CHARACTERS_MAX
    """The longest key; a longer one is refused, never cut to fit."""
    plans: bool = True
    """Whether `Plan-Key` and `Plan-Step` name a step."""
    plan_header: str = "Plan-Key"
    """The header that names the plan of a step."""
    step_header: str = "Plan-Step"
    """The header that names the step in its plan."""
    both: Literal["refuse", "plan"] = "refuse"
    """A key and a step on one request: 400 `ambiguous_identity`, or the step counts."""
    in_flight: Literal["refuse", "wait", "accept"] = "refuse"
    """While the first request runs: 409 at once; wait for its answer; or 202 with a code."""
    wait: Seconds = 30.0
    """With in_flight="wait": how long, before the 409."""
    pending_code: str = "pending"
    """With in_flight="accept": the code in the 202."""
    mismatch_status: int = 422
    """Same key, other request (`key_reused`)."""
    remember: RememberStatus = "success"
    """Which answers are stored: those below 400; those and the 4xx, for handlers that may have written before they
    refuse; all; or what a function of the status says. A 429 is stored by a function only: it asks for a retry."""
    error_shape: Literal["problem", "stripe"] = "problem"
    """How refusals are written: as problem+json, or as Stripe's SDKs read them (`{"error": {...}}`)."""
    unscoped: Literal[401, 500, "pass"] = 401
    """A request with a key from nobody knows whom: 401, 500, or passed to the application as if it had no key."""
    replay_header: str = "Idempotency-Replayed"
    """The header that marks a replay (`true`); a first answer does not have it."""
    plan_replay_header: str = "Plan-Replayed"
    """The same, where the request was a step of a plan."""
    marker: Literal["header", "member", "envelope"] = "header"
    """Also show a replay in the body: a member of the JSON object, or an envelope around it. Agents see no headers."""
    retain: Seconds | None = None
    """How long an answer is replayed, from its storing."""
    tombstone: Seconds | None = None
    """How long after that a retry is refused (410 `expired`) instead of run again."""
    after_expiry: AfterExpiry | None = None
    """What a retry past retention gets: `refuse`, or `run` (no tombstone: it runs again)."""
    fingerprint: Literal["canonical", "raw"] = "canonical"
    """How bodies are compared: JSON and forms by what they say, or everything by its bytes."""
    fingerprint_headers: tuple[str, ...] = ()
    """Headers that are part of what a request is, such as Accept or Stripe-Account."""
    stored_headers: tuple[str, ...] = STORED_HEADERS
    """Headers of an answer that are stored and replayed. No others are."""
    body_bytes_max: int = 100 * 1024 * 1024
    """A longer request body is refused (413) before anything runs."""
    memory_bytes_max: int = 1024 * 1024
    """What of a request body is held in memory; the rest waits in a temporary file. Longer JSON goes by its bytes."""
    upload_seconds_max: float = 300.0
    """A body that has not arrived by then is refused (408): nothing was claimed for it."""
    guarantee: Literal["blind", "repeatable", "keyed", "probed", "atomic"] = "blind"
    """What a handler's failure means. blind: a 5xx or an exception leaves the key in doubt. atomic: it is released."""
    answer_first: bool = False
    """Store and send an answer when it is complete, not when its handler has returned. Background tasks then follow it,
    and the record does not speak for them. Not where something commits after the answer, as FastAPI's `yield` does."""
    transactional: bool = False
    """The handler settles inside its own database transaction; see "Settle inside your transaction"."""
    probe: Callable[..., Any] | None = None
    """With guarantee="probed": given the operation, returns Found(Reply(...)) or NOT_FOUND."""
    keyed_for: Seconds | None = None
    """With guarantee="keyed": how long the provider behind the handler honours a key."""
    lease: Seconds | None = None
    """How long a claim holds without renewal; a running handler's is renewed."""
    lease_max: Seconds | None = None
    """How long a handler may hold its claim in all."""
    result_bytes_max: int | None = None
    """A longer answer (head and body) is given once, and not kept: the record says that it ran."""
    retry: ResiliencePart | None = None
    """A `Retry`: run the handler again, under the same claim, where the guarantee allows it. ASGI only."""
    breaker: ResiliencePart | None = None
    """A `Breaker`: while it is open, what has an answer is replayed, and the rest is 503 `circuit_open`."""
    budget: ResiliencePart | None = None
    """A `Budget`: pays for every run of a handler that follows a failed one; used up, it is 503 `budget_exhausted`."""


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
    """A profile by its name, with changes; refused here if it cannot work."""
    if isinstance(base, str):
        if base not in PROFILES:
            raise ConfigurationError(f"there is no profile {base!r}; there are {', '.join(PROFILES)}")
        base = PROFILES[base]
    unknown = sorted(set(changes) - _NAMES)
    if unknown:
        raise ConfigurationError(f"a profile has no {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    if not isinstance(base, Profile):
        raise ConfigurationError(f"a profile is a name or a Profile, not a {type(base).__name__}")
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
            raise ConfigurationError(f"{name} is one of {known}, not {str(getattr(made, name))[:40]!r}")
    for name in _SIZES:
        if not _is_whole(getattr(made, name)):
            raise ConfigurationError(f"{name} is a whole number above zero")
    for name in _SWITCHES:
        if not isinstance(getattr(made, name), bool):
            raise ConfigurationError(f"{name} is True or False")
    for name in _HEADERS:
        if not _is_word(getattr(made, name)):
            raise ConfigurationError(f"{name} is the name of a header, such as {getattr(PROFILES['default'], name)}")
    for name in _SEVERAL:
        words = getattr(made, name)
        if isinstance(words, str):
            raise ConfigurationError(f"{words!r} is one text where several are meant: write ({words!r},)")
        if not (isinstance(words, tuple | list) and all(map(_is_word, words))):
            raise ConfigurationError(f"{name} is a tuple of names, each of them letters, digits and hyphens")
    if not (isinstance(made.pending_code, str) and _CODE.fullmatch(made.pending_code)):
        raise ConfigurationError("pending_code is letters, digits and underscores: it becomes part of an address")
    if not isinstance(made.name, str):
        raise ConfigurationError("the name of a profile is a text")


def _is_whole(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def _is_word(word: object) -> bool:
    return isinstance(word, str) and _WORD.fullmatch(word) is not None


def _check_sense(made: Profile) -> None:
    if made.key_characters_max > KEY_CHARACTERS_MAX:
        raise ConfigurationError(f"key_characters_max is at most {KEY_CHARACTERS_MAX}")
    if len({getattr(made, name).lower() for name in _HEADERS[:3]}) < 3:
        raise ConfigurationError("key_header, plan_header and step_header are three different headers")
    if not (made.remember in ("success", "4xx", "all") or callable(made.remember)):
        raise ConfigurationError("remember is 'success', '4xx', 'all' or a function of the status")
    if not (_is_whole(made.mismatch_status) and 400 <= made.mismatch_status <= 499):
        raise ConfigurationError("mismatch_status is a status from 400 to 499")
    seconds: object = made.upload_seconds_max
    if isinstance(seconds, bool) or not (isinstance(seconds, int | float) and isfinite(seconds) and seconds > 0):
        raise ConfigurationError("upload_seconds_max is a number of seconds above zero")
    if (made.guarantee == "probed") != (made.probe is not None):
        raise ConfigurationError("guarantee='probed' and probe=function go together")
    if made.retry is not None and (made.answer_first or made.transactional):
        raise ConfigurationError("a handler that commits or goes on by itself cannot be run again: leave retry out")
    if made.transactional and made.guarantee not in ("blind", "atomic"):
        raise ConfigurationError("a transactional route is atomic: leave guarantee out, or say guarantee='atomic'")
    secret = sorted(NEVER_STORED & {name.lower() for name in made.stored_headers})
    if secret:
        raise ConfigurationError(f"{secret[0]} is never stored: it is a secret, or belongs to one connection")
