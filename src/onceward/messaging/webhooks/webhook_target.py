"""
Checks the URL of a webhook: one that a stranger gave must not lead into the internal network.

A target is checked by what its name resolves to, every address of it, and the connection is then made to a checked
address, so that a name cannot mean something else a moment later. Redirects are not followed.

    refused   not https, a user in the URL, another port, no host, a name that ends inside (.local, localhost)
    refused   any address that is not public: loopback, private, link-local (metadata services), shared (100.64/10),
              multicast, reserved, unspecified; the same inside IPv6: mapped, 6to4, Teredo, NAT64
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from onceward._core.errors import ConfigurationError, TargetRefused

Network: TypeAlias = IPv4Network | IPv6Network

URL_CHARACTERS_MAX = 2_048
PORTS = frozenset({443, 8443})
"""The ports that are called unless others are given."""

_HOST = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])", re.ASCII
)
_INSIDE = ("localhost", ".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".corp", ".private")

# Python's own list leaves some of these out, and differs between versions (192.0.0.8 and 2002: before 3.12.4, for one).
_REFUSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
            "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
            "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        ),
    )
)  # fmt: skip
_PUBLIC_6 = IPv6Network("2000::/3")
_REFUSED_6 = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "64:ff9b::/96", "64:ff9b:1::/48"))
)


_INSIDE_ADVICE = 'to call your own network, set allow_private=["127.0.0.1"]; for http, also allow_http'


class WebhookTarget(NamedTuple):
    """Where a message goes: checked as far as a URL can be. Its addresses are checked when it is sent."""

    host: str
    port: int
    path: str
    """With the query."""
    secure: bool = True


def parse_target(
    url: str, *, ports: Iterable[int] = PORTS, insecure: bool = False, plain: bool = False, inside: bool = False
) -> WebhookTarget:
    """
    A URL as a target, or `TargetRefused`.

    `plain` also takes http (on port 80); `inside` also takes bare addresses, names that end inside and any port, where
    the addresses themselves are checked later; `insecure` is both.
    """
    plain, inside = plain or insecure, inside or insecure
    if len(url) > URL_CHARACTERS_MAX or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise TargetRefused("the URL is too long, or has characters that are not allowed")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise TargetRefused("the URL cannot be read: write it as https://host/path") from None
    if parts.scheme != "https" and not (plain and parts.scheme == "http"):
        raise TargetRefused(f"webhooks are sent over https; {_INSIDE_ADVICE}")
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise TargetRefused("the URL contains a user; credentials do not belong in a URL")
    port = port if port is not None else (443 if parts.scheme == "https" else 80)
    if not inside and port not in ports and not (plain and port == 80):
        raise TargetRefused(
            f"port {port} is not one that webhooks are sent to; an endpoint of your own says which are, with ports, or "
            "which networks, with allow_private"
        )
    if not inside:
        _check_host(host)
    elif not host:
        raise TargetRefused("the URL names no host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookTarget(host, port, path, parts.scheme == "https")


def _check_host(host: str) -> None:
    bare = host.lower()
    if bare == "localhost" or bare.endswith(_INSIDE):
        raise TargetRefused(f"the URL's host is not public; {_INSIDE_ADVICE}")
    # Digits alone could be an address in one of its odd spellings (127.1, 0x7f.1, 2130706433): no public name ends so.
    if not _HOST.fullmatch(bare):
        raise TargetRefused(
            f"the URL's host is not a name in the public DNS: bare addresses are not called; {_INSIDE_ADVICE}"
        )


def check_addresses(addresses: Iterable[str], inside: Iterable[Network] = ()) -> list[str]:
    """The addresses of a host, if each is public or in an allowed network; otherwise `TargetRefused`."""
    networks = tuple(inside)
    found = list(addresses)
    if not found:
        raise TargetRefused("the URL's host has no address")
    for one in found:
        if not is_public(one) and not _is_in(one, networks):
            raise TargetRefused("the URL's host leads to an address that is not public")
    return found


def parse_networks(spoken: Iterable[str]) -> tuple[Network, ...]:
    """Networks inside that may be called all the same, such as 10.20.0.0/16; `ConfigurationError` if one is none."""
    if isinstance(spoken, str) or not isinstance(spoken, Iterable):
        raise ConfigurationError('list the private networks that may be called, one by one: ["10.20.0.0/16"]')
    found = []
    for text in spoken:
        try:
            network = ip_network(text)
        except ValueError:
            raise ConfigurationError(
                f"{text!r} is not a network: write it as 10.20.0.0/16, fd12:3456::/32 or 127.0.0.1"
            ) from None
        if network.prefixlen < (8 if network.version == 4 else 7):
            raise ConfigurationError(f"{text} covers much of the Internet: name the network you mean")
        found.append(network)
    return tuple(found)


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    # As it stands: 127.0.0.1 wrapped in IPv6 is not in 127.0.0.0/8. A zone (%eth0) is nowhere.
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return "%" not in address and any(found.version == one.version and found in one for one in networks)


def is_public(address: str) -> bool:
    """Whether an address lies out in the world, whatever it is wrapped in."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv4Address):
        return not any(found in network for network in _REFUSED_4)
    return _is_public_6(found)


def _is_public_6(found: IPv6Address) -> bool:
    # An address inside an address (mapped, 6to4, Teredo, NAT64) is refused with its wrapping: nobody needs it.
    return found in _PUBLIC_6 and not any(found in network for network in _REFUSED_6)
