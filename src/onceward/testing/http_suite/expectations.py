"""
What each profile promises, as a client can see it.

The names and figures are those of the contract. They are written down here once more on purpose: a suite that asked the
server what to expect would agree with every server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from onceward._core.errors import ConfigurationError

AFTER_FAILURE = {"after_4xx": ("release", "replay"), "after_5xx": ("doubt", "replay", "run")}
"""The words for what becomes of a key whose request failed."""

KEY_LENGTH_LEAST = 36
"""A UUID's. The suite's own keys are shorter."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What must be seen of an API under one profile."""

    profile: str
    sentence: str
    key_header: str = "Idempotency-Key"
    """The header that carries the key."""
    key_required: bool = False
    """Whether a request without a key is refused, rather than run each time."""
    key_length_max: int = 255
    """Characters of the longest key that is accepted; one more is refused."""
    quoted_keys: bool = False
    """Whether the key is sent as a quoted string, and a bare one may be refused."""
    in_flight_status: int = 409
    """The response to a duplicate while the first request runs."""
    in_flight_waits: bool = False
    """Whether a duplicate waits for the first one's response, rather than being refused at once."""
    in_flight_codes: tuple[str, ...] = ("in_flight",)
    """Any of these words is the code in that response's body; none: the body is not judged."""
    wait_in_body: bool = False
    """Whether that response says how long to wait as `retryAfterSeconds` in its body, rather than as `Retry-After`."""
    mismatch_status: int = 422
    """The response to a key that was used for another request."""
    after_4xx: str = "release"
    """`release`: a request that was refused runs again under its key. `replay`: it is remembered."""
    after_5xx: str = "doubt"
    """`doubt`: a request that broke is not run again (409 `in_doubt`). `replay`: remembered. `run`: runs again."""
    marker: str = "Idempotency-Replayed"
    """The header that says `true` on a replay, and is absent on a first response."""
    problem_json: bool = True
    """Whether refusals are `application/problem+json`."""
    stripe_errors: bool = False
    """Whether refusals are written as Stripe's: `{"error": {"type": ..., "message": ...}}`, which its SDKs raise."""
    codes: bool = True
    """Whether refusals say `code` and `retry` in words of ours."""
    link_required: bool = False
    """Whether a refusal must link to its documentation."""
    plans: bool = False
    """Whether `Plan-Key` and `Plan-Step` name a step of a plan."""

    def with_changes(self, changes: Mapping[str, Any]) -> Expectations:
        """The same, except for what the caller's own API promises."""
        types = {field.name: type(getattr(self, field.name)) for field in fields(self)}
        del types["profile"], types["sentence"]
        for name, value in changes.items():
            if name not in types:
                raise ConfigurationError(f"there is no expectation {name!r}; the names are {', '.join(types)}")
            if type(value) is not types[name] and types[name] is not tuple:
                raise ConfigurationError(f"expect {name}: {value!r} is not of the right kind ({types[name].__name__})")
            if name.endswith("_status") and not 200 <= value <= 599:
                raise ConfigurationError(f"expect {name}: a status from 200 to 599 is needed")
            if name == "key_length_max" and value < KEY_LENGTH_LEAST:
                raise ConfigurationError(f"expect {name}: at least {KEY_LENGTH_LEAST}, for the keys that are sent")
            if name in AFTER_FAILURE and value not in AFTER_FAILURE[name]:
                raise ConfigurationError(f"expect {name}: one of {', '.join(AFTER_FAILURE[name])} is needed")
        listed: dict[str, Any] = {
            name: _words(name, value) if types[name] is tuple else value for name, value in changes.items()
        }
        return replace(self, **listed)

    def read(self, name: str, text: str) -> Any:
        """A changed expectation as it is typed: NAME=VALUE."""
        kind = type(getattr(self, name, ""))
        if kind is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        if kind is tuple:
            return text.split(",")
        return int(text) if kind is int and text.isascii() and text.isdecimal() else text


def _words(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
        raise ConfigurationError(f"expect {name}: a list of words is needed")
    return tuple(word for word in value if word)


PROFILES = {
    one.profile: one
    for one in (
        Expectations(
            "default",
            "A key is optional; duplicates in flight get 409 and a wait, other requests 422; a 4xx frees the key.",
        ),
        Expectations(
            "ietf",
            "As the IETF draft: a quoted key is required, and refusals (400, 409, 422) link to their meaning.",
            key_required=True,
            quoted_keys=True,
            link_required=True,
        ),
        Expectations(
            "stripe",
            "Every response is remembered, failures too; another request under the same key gets 400. Refusals have "
            "Stripe's own shape, because its SDKs take any other body for a success.",
            mismatch_status=400,
            in_flight_codes=(),
            after_4xx="replay",
            after_5xx="replay",
            marker="Idempotent-Replayed",
            problem_json=False,
            stripe_errors=True,
            codes=False,
        ),
        Expectations(
            "pacspace",
            "Duplicates in flight get 202 with a code and a wait in the body; other requests 409.",
            in_flight_status=202,
            in_flight_codes=("pending", "IDEMPOTENCY_PENDING"),
            wait_in_body=True,
            mismatch_status=409,
            problem_json=False,
            codes=False,
        ),
        Expectations(
            "persql",
            "Keys of at most 200 characters, duplicates that wait, and plans (steps named by Plan-Key and Plan-Step).",
            key_length_max=200,
            in_flight_waits=True,
            plans=True,
        ),
    )
}
"""By name."""
