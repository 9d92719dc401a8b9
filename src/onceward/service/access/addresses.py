"""
The address that a call came from, behind trusted proxies. A pure function of what was received.

What a caller writes into `X-Forwarded-For` or `Forwarded` is worth nothing. What a trusted proxy appended is: it saw
the address that it names. So the list is walked from the right, where our own proxies wrote, for as long as each
address is one of theirs; the first that is not is the caller's, and what stands to the left of it is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from onceward._core.errors import ConfigurationError, RequestInvalid

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

HOPS_MAX = 32
"""Trusted proxies in a row: a longer chain is a loop."""
FLOOD_BITS_V6 = 64
"""Whoever has one IPv6 address has 2^64 of them: the smallest network that is handed out counts as one caller."""

ADDRESSES_REMEMBERED = 4_096
ADDRESS_CHARACTERS_REMEMBERED = 64
"""A caller's many requests come from one address. No address is longer than that, and what is none is not kept."""

_PAIR = re.compile(r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*')
_WITH_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+))(?::(?P<port>[0-9]{1,5}))?")
_PORT_MAX = 65_535
_HIDDEN = re.compile(r"unknown|_[A-Za-z0-9._-]+")


def trusted_networks(texts: Iterable[str], what: str = "a trusted proxy") -> tuple[Network, ...]:
    """Networks from their usual spelling, such as 10.0.0.0/8."""
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigurationError(f"{what} is an address, or a network such as 10.0.0.0/8: {error}") from None


def client_address(
    peer: str, forwarded_headers: Sequence[tuple[str, str]], trusted_networks: Sequence[Network] = ()
) -> str:
    """
    The caller's address: the peer's own or, if the peer is a trusted proxy, the one that the proxies vouch for.

    `forwarded_headers` are all header fields as they came (others are ignored). `RequestInvalid` if a proxy of ours
    wrote something odd, or if both headers are there and disagree: a proxy that knows one of them passes on what a
    caller wrote into the other. A proxy that hides an address (`for=unknown`, `for=_x`) stands for its callers.
    """
    here = _address(peer)
    if here is None or not _is_trusted(here, trusted_networks):
        return peer if here is None else str(here)
    callers: set[str] = set()
    for name, items in (("x-forwarded-for", _plain_list), ("forwarded", _pairs_list)):
        values = [value for header, value in forwarded_headers if header.lower() == name]
        if values:
            callers.add(str(_walked(here, items(",".join(values)), trusted_networks)))
    if len(callers) > 1:
        raise RequestInvalid(
            "X-Forwarded-For and Forwarded name different callers; let the proxy send only one of them"
        )
    return callers.pop() if callers else str(here)


def is_trusted_address(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address is one of a trusted proxy."""
    found = _address(address) if networks else None
    return found is not None and _is_trusted(found, networks)


def flood_address(address: str) -> str:
    """What an address is counted under: IPv6 by its /64, the rest as it is."""
    found = _address(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((int(found) >> FLOOD_BITS_V6 << FLOOD_BITS_V6, FLOOD_BITS_V6)))
    return address[:64] if found is None else str(found)


def _walked(peer: Address, items: list[str], networks: Sequence[Network]) -> Address:
    nearest = peer
    for hops, item in enumerate(reversed(items)):
        if hops == HOPS_MAX:
            break
        if _HIDDEN.fullmatch(item):
            return nearest
        nearest = _spelled(item)
        if not _is_trusted(nearest, networks):
            return nearest
    return nearest


def _plain_list(value: str) -> list[str]:
    return [item.strip(" \t") for item in value.split(",")]


def _pairs_list(value: str) -> list[str]:
    """What each element of `Forwarded` (RFC 7239) says under `for`; nothing is an odd spelling, and told as one."""
    return [_for_in(element) for element in _split_unquoted(value, ",")]


def _for_in(element: str) -> str:
    found = []
    for pair in _split_unquoted(element, ";"):
        match = _PAIR.fullmatch(pair)
        if match is None:
            return ""
        if match[1].lower() == "for":
            text = match[2]
            found.append(re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text)
    return found[0] if len(found) == 1 else ""


def _split_unquoted(value: str, separator: str) -> list[str]:
    parts, start, quoted, escaped = [], 0, False, False
    for at, character in enumerate(value):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            parts.append(value[start:at])
            start = at + 1
    return [*parts, value[start:]]


def _spelled(item: str) -> Address:
    """An address as a proxy wrote it, perhaps with a port."""
    match = _WITH_PORT.fullmatch(item)
    found = _address((match["six"] or match["four"]) if match else item)
    if found is None or (match is not None and int(match["port"] or 0) > _PORT_MAX):
        raise RequestInvalid("a trusted proxy forwarded something that is not an address; check its configuration")
    return found


def _address(text: str) -> Address | None:
    """An address in its plain form: no zone; IPv4 inside IPv6 is IPv4."""
    return _remembered_address(text) if len(text) <= ADDRESS_CHARACTERS_REMEMBERED else _read_address(text)


def _read_address(text: str) -> Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:
            return None
        return found.ipv4_mapped or found
    return found


_remembered_address = lru_cache(maxsize=ADDRESSES_REMEMBERED)(_read_address)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether an address, as `client_address` spells it, is in one of these networks."""
    found = _address(address)
    return found is not None and _is_trusted(found, networks)


def _is_trusted(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
