"""
A profile: what an API promises about keys, as one value. Each field can be overridden, for an app or for one route.

    profile("stripe")                       a named one
    profile("stripe", require_key=True)     the same, but
    Route("/refunds/{id}", guarantee="keyed", profile fields ...)

`onceward contract --profile NAME` prints one, and `/.well-known/idempotency` publishes the one in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from onceward._core.errors import ConfigurationError
from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward._core.terms import AfterExpiry, Seconds

RememberStatus: TypeAlias = Literal["success", "all"] | Callable[[int], bool]

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
    methods: tuple[str, ...] = ("POST", "PATCH", "PUT", "DELETE")
    """Methods whose requests may carry a key. Others pass through untouched, whatever they carry."""
    require_key: bool = False
    """Whether a request with one of these methods and without a key is refused (400 `key_missing`)."""
    key_header: str = "Idempotency-Key"
    key_characters_max: int = KEY_CHARACTERS_MAX
    plans: bool = True
    """Whether `Plan-Key` and `Plan-Step` name a step."""
    plan_header: str = "Plan-Key"
    step_header: str = "Plan-Step"
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
    """Which answers are stored: those below 400; all; or what a function of the status says."""
    replay_header: str = "Idempotency-Replayed"
    plan_replay_header: str = "Plan-Replayed"
    marker: Literal["header", "member", "envelope"] = "header"
    """Also show a replay in the body: a member of the JSON object, or an envelope around it. Agents see no headers."""
    retain: Seconds | None = None
    tombstone: Seconds | None = None
    after_expiry: AfterExpiry | None = None
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
    transactional: bool = False
    """The handler settles inside its own database transaction; see "Settle inside your transaction"."""
    probe: Callable[..., Any] | None = None
    """With guarantee="probed": given the operation, returns Found(Reply(...)) or NOT_FOUND."""
    keyed_for: Seconds | None = None
    lease: Seconds | None = None
    lease_max: Seconds | None = None
    result_bytes_max: int | None = None


PROFILES: Mapping[str, Profile] = {
    "default": Profile(),
    "ietf": Profile(name="ietf", methods=("POST", "PATCH"), require_key=True),
    "stripe": Profile(
        name="stripe",
        methods=("POST",),
        mismatch_status=400,
        remember="all",
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
_CHOICES = {
    "both": ("refuse", "plan"),
    "in_flight": ("refuse", "wait", "accept"),
    "marker": ("header", "member", "envelope"),
    "fingerprint": ("canonical", "raw"),
    "guarantee": ("blind", "repeatable", "keyed", "probed", "atomic"),
}
_SIZES = ("key_characters_max", "body_bytes_max", "memory_bytes_max")


def profile(base: str | Profile = "default", /, **changes: Any) -> Profile:
    """A profile by its name, with changes; refused here if it cannot work."""
    if isinstance(base, str):
        if base not in PROFILES:
            raise ConfigurationError(f"there is no profile {base!r}; there are {', '.join(PROFILES)}")
        base = PROFILES[base]
    unknown = sorted(set(changes) - _NAMES)
    if unknown:
        raise ConfigurationError(f"a profile has no {unknown[0]!r}; it has {', '.join(sorted(_NAMES))}")
    return _checked(replace(base, **changes))


def _checked(made: Profile) -> Profile:
    for name, choices in _CHOICES.items():
        if getattr(made, name) not in choices:
            raise ConfigurationError(f"{name} is one of {', '.join(choices)}, not {str(getattr(made, name))[:40]!r}")
    for name in _SIZES:
        size = getattr(made, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigurationError(f"{name} is a whole number above zero")
    if made.key_characters_max > KEY_CHARACTERS_MAX:
        raise ConfigurationError(f"key_characters_max is at most {KEY_CHARACTERS_MAX}")
    if not (made.remember in ("success", "all") or callable(made.remember)):
        raise ConfigurationError("remember is 'success', 'all' or a function of the status")
    if not 400 <= made.mismatch_status <= 499:
        raise ConfigurationError("mismatch_status is a status from 400 to 499")
    if not made.upload_seconds_max > 0:
        raise ConfigurationError("upload_seconds_max is a number of seconds above zero")
    if (made.guarantee == "probed") != (made.probe is not None):
        raise ConfigurationError("guarantee='probed' and probe=function go together")
    if made.transactional and made.guarantee not in ("blind", "atomic"):
        raise ConfigurationError("a transactional route is atomic: leave guarantee out, or say guarantee='atomic'")
    several: tuple[Any, ...] = (made.methods, made.fingerprint_headers, made.stored_headers)
    for names in several:
        if isinstance(names, str):
            raise ConfigurationError(f"{names!r} is one text where several are meant: write ({names!r},)")
    secret = sorted(NEVER_STORED & {name.lower() for name in made.stored_headers})
    if secret:
        raise ConfigurationError(f"{secret[0]} is never stored: it is a secret, or belongs to one connection")
    return replace(
        made,
        methods=tuple(method.upper() for method in made.methods),
        stored_headers=tuple(name.lower() for name in made.stored_headers),
        fingerprint_headers=tuple(sorted({name.lower() for name in made.fingerprint_headers})),
    )
