"""
Who a request says it is: a key, a step of a plan, or nobody.

A key may come bare or as a structured field's string (`"abc"`): both are the key abc. What could be read in two ways
is refused: a header that occurs twice, a quote that does not close, a key and a step at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from onceward._core.errors import AmbiguousIdentity, KeyInvalid, KeyMissing, PlanIncomplete
from onceward._core.keys import check_key
from onceward._core.structured_fields import Malformed, Token, parse_list
from onceward.http.server.profile import Profile

HEADER_BYTES_MAX = 4_096
"""A longer header is not even looked at: the longest key, every character of it escaped, is an eighth of that."""


class RequestIdentity(NamedTuple):
    """A key, or a step of a plan."""

    key: str
    """The key; of a step, its name."""
    plan: str | None = None


def identity_of(headers: Iterable[tuple[bytes, bytes]], profile: Profile) -> RequestIdentity | None:
    """Who this request is; None if it does not say. Header names are in lower case."""
    names = _names(profile.key_header, profile.plan_header, profile.step_header, profile.plans)
    found = [pair for pair in headers if pair[0] in names]
    if len(found) == 1 and found[0][0] == names[0]:
        return RequestIdentity(_read(found[0][1], profile.key_header, profile))
    return _identity_from(found, profile)


def _identity_from(headers: list[tuple[bytes, bytes]], profile: Profile) -> RequestIdentity | None:
    """What the headers that may name a request say, where that is not one key and nothing else."""
    key = _only(headers, profile.key_header)
    plan = step = None
    if profile.plans:
        plan, step = _only(headers, profile.plan_header), _only(headers, profile.step_header)
    if plan is None and step is None:
        if key is not None:
            return RequestIdentity(_read(key, profile.key_header, profile))
        if profile.require_key:
            raise KeyMissing(
                f"this request needs the header {profile.key_header}: choose a key, and keep it for retries"
            )
        return None
    if plan is None or step is None:
        missing = profile.plan_header if plan is None else profile.step_header
        raise PlanIncomplete(f"a step is named by two headers, and {missing} is missing")
    if key is not None and profile.both == "refuse":
        raise AmbiguousIdentity(
            f"{profile.key_header} and {profile.plan_header} name two operations; a request is one of them"
        )
    return RequestIdentity(_read(step, profile.step_header, profile), _read(plan, profile.plan_header, profile))


@lru_cache(maxsize=64)
def _header_bytes(name: str) -> bytes:
    return name.lower().encode("ascii")


@lru_cache(maxsize=1_024)
def _names(key: str, plan: str, step: str, plans: bool) -> tuple[bytes, ...]:
    """The headers that may name a request, as they are on the wire, the key's first."""
    return tuple(map(_header_bytes, (key, plan, step) if plans else (key,)))


def _only(headers: Iterable[tuple[bytes, bytes]], name: str) -> bytes | None:
    wanted = _header_bytes(name)
    found = [value for header, value in headers if header == wanted]
    if len(found) > 1:
        raise KeyInvalid(f"{name} occurs {len(found)} times in this request; send it once")
    return found[0] if found else None


def _read(raw: bytes, name: str, profile: Profile) -> str:
    if len(raw) > HEADER_BYTES_MAX:
        raise KeyInvalid(f"{name} is longer than {profile.key_characters_max} characters; it is never cut to fit")
    text = raw.decode("latin-1").strip(" \t")
    try:
        if text.startswith('"'):
            text = _unquoted(text)
        return check_key(text, profile.key_characters_max)
    except KeyInvalid as error:
        # Nothing in a header is "missing" as far as the caller can see: it is there, and empty.
        raise KeyInvalid(f"{name}: {error}") from None


def _unquoted(text: str) -> str:
    try:
        items = parse_list(text)
    except Malformed:
        raise KeyInvalid(
            "the key begins with a quotation mark and is no quoted text; close it, or leave it out"
        ) from None
    if (
        len(items) != 1
        or items[0].parameters
        or not isinstance(items[0].value, str)
        or isinstance(items[0].value, Token)
    ):
        raise KeyInvalid("the key is more than one quoted text; send one key, without parameters")
    return items[0].value
