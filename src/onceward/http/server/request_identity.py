"""
Reads a request's identity from its headers: a key, a step of a plan, or none.

A key may be sent bare or as a structured field's string (`"abc"`): both are the key abc. What could be read in two ways
is refused: a header that occurs twice, a quote that does not close, a key and a step at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from onceward._core.errors import AmbiguousIdentity, KeyInvalid, KeyMissing, PlanIncomplete
from onceward._core.keys import check_key
from onceward._core.record_types import new_tuple
from onceward._core.structured_fields import Malformed, Token, parse_list
from onceward.http.server.profile import Profile

HEADER_BYTES_MAX = 4_096
"""A longer header is refused unread: the longest key, with every character escaped, is an eighth of that."""
_PLAIN = re.compile(rb"[!#-~][!-~]*")
"""A bare key, as most clients send it: what is left of the checks below is its length."""
_PLAIN_QUOTED = re.compile(r'"([\x20-\x21\x23-\x5b\x5d-\x7e]*)"')
"""One quoted text without escapes: what nearly every client sends, and read without the parser."""


class RequestIdentity(NamedTuple):
    """A key, or a step of a plan."""

    key: str
    """The key; of a step, its name."""
    plan: str | None = None


IdentityNames = tuple[bytes, bytes | None, bytes | None]
"""The headers that may identify a request, in lower case: a key's, and those of a step, if there are plans."""


def identity_of(
    headers: Iterable[tuple[bytes, bytes]],
    profile: Profile,
    single: Mapping[bytes, bytes] | None = None,
    names: IdentityNames | None = None,
) -> RequestIdentity | None:
    """
    The identity of this request; None if it has none. Header names are in lower case.

    `single` is the same headers by name, if none of them occurs twice: then they need not be looked through. `names`
    are the profile's, if they are at hand.
    """
    names = names or identity_names(profile)
    if single is not None:
        key, plan, step = names
        if plan not in single and step not in single:
            if key in single:
                found = (_read(single[key], profile.key_header, profile), None)
                return new_tuple(RequestIdentity, found)  # type: ignore[no-any-return]
            if not profile.require_key:
                return None
    return _identity_from([pair for pair in headers if pair[0] in names], profile)


def identity_names(profile: Profile) -> IdentityNames:
    """The headers by which this profile identifies a request."""
    return _names(profile.key_header, profile.plan_header, profile.step_header, profile.plans)


def _identity_from(headers: list[tuple[bytes, bytes]], profile: Profile) -> RequestIdentity | None:
    """The identity, in all cases but the most common: one key header and nothing else."""
    key = _only(headers, profile.key_header)
    plan = step = None
    if profile.plans:
        plan, step = _only(headers, profile.plan_header), _only(headers, profile.step_header)
    if plan is None and step is None:
        if key is not None:
            return RequestIdentity(_read(key, profile.key_header, profile))
        if profile.require_key:
            raise KeyMissing(
                f"this request needs the header {profile.key_header}. Choose a key, and send the same on every retry"
            )
        return None
    if plan is None or step is None:
        missing = profile.plan_header if plan is None else profile.step_header
        raise PlanIncomplete(f"the header {missing} is missing: a step needs two headers")
    if key is not None and profile.both == "refuse":
        raise AmbiguousIdentity(
            f"this request has both {profile.key_header} and {profile.plan_header}, which name two operations; "
            "send one of them"
        )
    return RequestIdentity(_read(step, profile.step_header, profile), _read(plan, profile.plan_header, profile))


@lru_cache(maxsize=64)
def _header_bytes(name: str) -> bytes:
    return name.lower().encode("ascii")


@lru_cache(maxsize=1_024)
def _names(key: str, plan: str, step: str, plans: bool) -> IdentityNames:
    if not plans:
        return _header_bytes(key), None, None
    return _header_bytes(key), _header_bytes(plan), _header_bytes(step)


def _only(headers: Iterable[tuple[bytes, bytes]], name: str) -> bytes | None:
    wanted = _header_bytes(name)
    found = [value for header, value in headers if header == wanted]
    if len(found) > 1:
        raise KeyInvalid(f"{name} occurs {len(found)} times in this request; send it once")
    return found[0] if found else None


def _read(raw: bytes, name: str, profile: Profile) -> str:
    if len(raw) <= profile.key_characters_max and _PLAIN.fullmatch(raw):
        return raw.decode("ascii")
    if len(raw) > HEADER_BYTES_MAX:
        raise KeyInvalid(f"{name} is longer than {profile.key_characters_max} characters; it is never shortened")
    text = raw.decode("latin-1").strip(" \t")
    try:
        if text.startswith('"'):
            text = _unquoted(text)
        return check_key(text, profile.key_characters_max)
    except KeyInvalid as error:
        # Not KeyMissing: the caller did send the header, and it was empty.
        raise KeyInvalid(f"{name}: {error}") from None


def _unquoted(text: str) -> str:
    plain = _PLAIN_QUOTED.fullmatch(text)
    if plain is not None:
        return plain[1]
    try:
        items = parse_list(text)
    except Malformed:
        raise KeyInvalid(
            "the key begins with a quotation mark and is not a quoted text; close the quotation, or leave it out"
        ) from None
    if (
        len(items) != 1
        or items[0].parameters
        or not isinstance(items[0].value, str)
        or isinstance(items[0].value, Token)
    ):
        raise KeyInvalid("the header holds more than one quoted text; send one key, without parameters")
    return items[0].value
