"""Profiles: five named ones, each field changeable, and a field that cannot work refused where it is given."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from onceward import ConfigurationError, Retry
from onceward.http import PROFILES, Profile, profile
from onceward.http.server.profile import NEVER_STORED
from onceward.retry import Breaker, Budget

SAYS: dict[str, dict[str, Any]] = {
    "default": {
        "methods": ("POST", "PATCH", "PUT", "DELETE"),
        "require_key": False,
        "in_flight": "refuse",
        "mismatch_status": 422,
        "remember": "success",
        "key_characters_max": 255,
        "replay_header": "Idempotency-Replayed",
        "plan_replay_header": "Plan-Replayed",
        "guarantee": "blind",
    },
    "ietf": {"methods": ("POST", "PATCH"), "require_key": True, "mismatch_status": 422, "in_flight": "refuse"},
    "stripe": {
        "methods": ("POST",),
        "mismatch_status": 400,
        "remember": "all",
        "replay_header": "Idempotent-Replayed",
        "key_characters_max": 255,
        "after_expiry": "run",
    },
    "pacspace": {"methods": ("POST",), "in_flight": "accept", "mismatch_status": 409},
    "persql": {"key_characters_max": 200, "in_flight": "wait", "require_key": False, "after_expiry": "run"},
}


@pytest.mark.parametrize("name", SAYS)
def test_a_named_profile_says_what_it_is_known_for(name: str) -> None:
    """
    Five of them; the table above is the contract.
    """
    made = profile(name)

    assert name == made.name
    assert SAYS[name] == {field: getattr(made, field) for field in SAYS[name]}


def test_there_are_five() -> None:
    """
    And each is what `profile` gives back for its name.
    """
    assert SAYS.keys() == PROFILES.keys()
    assert {name: profile(name) for name in PROFILES} == dict(PROFILES)


OTHERWISE: dict[str, Any] = {
    "name": "ours",
    "methods": ("POST",),
    "require_key": True,
    "key_header": "X-Key",
    "key_characters_max": 36,
    "plans": False,
    "plan_header": "X-Plan",
    "step_header": "X-Step",
    "both": "plan",
    "in_flight": "wait",
    "wait": 5,
    "pending_code": "still_running",
    "mismatch_status": 409,
    "remember": lambda status: status == 404,
    "replay_header": "X-Replayed",
    "plan_replay_header": "X-Plan-Replayed",
    "marker": "envelope",
    "retain": 60,
    "tombstone": 60,
    "after_expiry": "run",
    "fingerprint": "raw",
    "fingerprint_headers": ("stripe-account",),
    "error_shape": "problem",
    "unscoped": "pass",
    "stored_headers": ("content-type",),
    "body_bytes_max": 10,
    "memory_bytes_max": 10,
    "upload_seconds_max": 1.5,
    "guarantee": "keyed",
    "answer_first": True,
    "keyed_for": 60,
    "lease": 5,
    "lease_max": 50,
    "result_bytes_max": 10,
    "retry": Retry(),
    "breaker": Breaker("payments"),
    "budget": Budget(),
}
TOGETHER = {"probe", "transactional"}
"""Fields that need another one beside them."""


@pytest.mark.parametrize("field", [one.name for one in fields(Profile) if one.name not in TOGETHER])
def test_each_field_can_be_changed_alone(field: str) -> None:
    """
    Everything else stays as the named profile has it.
    """
    changed = profile("stripe", **{field: OTHERWISE[field]})

    assert replace(profile("stripe"), **{field: OTHERWISE[field]}) == changed
    assert OTHERWISE[field] != getattr(profile("stripe"), field) or field in ("methods", "after_expiry")


def test_fields_that_need_each_other_are_given_together() -> None:
    """
    A probe belongs to `probed`.
    """
    assert profile(guarantee="probed", probe=lambda operation: None).guarantee == "probed"


def test_a_change_is_made_to_a_profile_of_ones_own_too() -> None:
    """
    Profiles are values.
    """
    ours = profile("ietf", name="ours", mismatch_status=400)

    assert (profile(ours, in_flight="wait").mismatch_status, profile(ours, in_flight="wait").in_flight) == (400, "wait")
    assert ours.in_flight == "refuse"


def test_names_are_taken_in_any_case() -> None:
    """
    Methods are upper case on the wire, and names of headers lower.
    """
    made = profile(methods=["post"], stored_headers=["Content-Type"], fingerprint_headers=["Accept", "accept"])

    assert (made.methods, made.stored_headers, made.fingerprint_headers) == (("POST",), ("content-type",), ("accept",))


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"no_such": 1}, "no field 'no_such'"),
        ({"in_flight": "queue"}, "in_flight must be one of"),
        ({"both": []}, "both must be one of"),
        ({"marker": None}, "marker must be one of"),
        ({"guarantee": "exact"}, "guarantee must be one of"),
        ({"fingerprint": "md5"}, "fingerprint must be one of"),
        ({"remember": "some"}, "remember must be"),
        ({"key_characters_max": 256}, "at most 255"),
        ({"key_characters_max": 0}, "above zero"),
        ({"body_bytes_max": True}, "above zero"),
        ({"memory_bytes_max": 1.5}, "above zero"),
        ({"mismatch_status": 500}, "from 400 to 499"),
        ({"mismatch_status": "422"}, "from 400 to 499"),
        ({"upload_seconds_max": 0}, "above zero"),
        ({"upload_seconds_max": float("nan")}, "above zero"),
        ({"upload_seconds_max": float("inf")}, "above zero"),
        ({"upload_seconds_max": "30"}, "above zero"),
        ({"require_key": "yes"}, "True or False"),
        ({"answer_first": 1}, "True or False"),
        ({"methods": "POST"}, r"write \('POST',\)"),
        ({"methods": ("PO ST",)}, "tuple of names"),
        ({"methods": 7}, "tuple of names"),
        ({"stored_headers": "etag"}, r"write \('etag',\)"),
        ({"stored_headers": ("x\r\ny",)}, "tuple of names"),
        ({"fingerprint_headers": (7,)}, "tuple of names"),
        ({"key_header": "Idempotency Key"}, "name of a header"),
        ({"key_header": "clé"}, "name of a header"),
        ({"replay_header": "X\r\nSet-Cookie"}, "name of a header"),
        ({"plan_header": ""}, "name of a header"),
        ({"plan_header": "idempotency-key"}, "three different headers"),
        ({"pending_code": "../up"}, "part of a URL"),
        ({"pending_code": None}, "part of a URL"),
        ({"name": 7}, "a text"),
        ({"guarantee": "probed"}, "go together"),
        ({"probe": print}, "go together"),
        ({"transactional": True, "guarantee": "keyed"}, "transactional"),
    ],
)
def test_a_field_that_cannot_work_is_refused(changes: dict[str, Any], about: str) -> None:
    """
    Where it is given, with the field's name and what it may be.
    """
    with pytest.raises(ConfigurationError, match=about):
        profile("default", **changes)


def test_an_unknown_profile_is_refused_with_the_names_there_are() -> None:
    """
    And so is something that is no profile at all.
    """
    with pytest.raises(ConfigurationError, match="default, ietf, stripe, pacspace, persql"):
        profile("paypal")
    with pytest.raises(ConfigurationError, match="not a dict"):
        profile({})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(NEVER_STORED))
def test_no_allow_list_may_name_a_secret_or_a_header_of_one_connection(name: str) -> None:
    """
    In any case of its letters.
    """
    with pytest.raises(ConfigurationError, match="never stored"):
        profile(stored_headers=("content-type", name.title()))
    assert name not in Profile().stored_headers
