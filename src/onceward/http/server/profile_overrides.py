"""
The fields of a profile as keywords, for type checkers: what `Route`, `profile` and the middlewares take by name.

A test compares them with `Profile`, which has their meaning and their defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypedDict

from onceward._core.resilience import ResiliencePart
from onceward._core.terms import AfterExpiry, Seconds

RememberStatus: TypeAlias = Literal["success", "4xx", "all"] | Callable[[int], bool]


class RouteOverrides(TypedDict, total=False):
    """What can be overridden for one route, besides its methods."""

    name: str
    require_key: bool
    key_header: str
    key_characters_max: int
    plans: bool
    plan_header: str
    step_header: str
    both: Literal["refuse", "plan"]
    in_flight: Literal["refuse", "wait", "accept"]
    wait: Seconds
    pending_code: str
    mismatch_status: int
    remember: RememberStatus
    error_shape: Literal["problem", "stripe"]
    unscoped: Literal[401, 500, "pass"]
    replay_header: str
    plan_replay_header: str
    marker: Literal["header", "member", "envelope"]
    retain: Seconds | None
    tombstone: Seconds | None
    after_expiry: AfterExpiry | None
    fingerprint: Literal["canonical", "raw"]
    fingerprint_headers: tuple[str, ...]
    stored_headers: tuple[str, ...]
    body_bytes_max: int
    memory_bytes_max: int
    upload_seconds_max: float
    guarantee: Literal["blind", "repeatable", "keyed", "probed", "atomic"]
    answer_first: bool
    transactional: bool
    probe: Callable[..., Any] | None
    keyed_for: Seconds | None
    lease: Seconds | None
    lease_max: Seconds | None
    result_bytes_max: int | None
    retry: ResiliencePart | None
    breaker: ResiliencePart | None
    budget: ResiliencePart | None


class ProfileOverrides(RouteOverrides, total=False):
    """What can be overridden in a profile: any of its fields."""

    methods: tuple[str, ...]
