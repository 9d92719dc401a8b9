"""Behind a proxy: only what trusted proxies saw is believed, and floods are counted by it. Over a real socket."""

from __future__ import annotations

import http.client
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from service_support import Heard, Served

PROXY = "127.0.0.1"
STRANGER = "127.0.0.2"
"""Another address of this machine, which is not in the list of proxies."""
ENOUGH = 500
"""Calls after which a burst of three must have been noticed, on a slow machine, too: one a second is let through."""


@pytest.fixture(scope="module")
def behind() -> Iterator[Served]:
    """A service that trusts one address and one network."""
    with tempfile.TemporaryDirectory(prefix="onceward-proxy-") as folder:
        flags = ("--flood-burst", "3", "--trusted-proxies", f"{PROXY}, 10.0.0.0/8 2001:db8:1::/48")
        served = Served.started(Path(folder), *flags)
        try:
            yield served
        finally:
            served.stop()


def call(service: Served, peer: str, *forwarded: tuple[str, str], token: str = "") -> Heard:
    """One call from an address, with headers that say where it comes from."""
    connection = http.client.HTTPConnection(urlsplit(service.address).netloc, timeout=60, source_address=(peer, 0))
    connection.putrequest("GET", "/v1/db/demo")
    for name, value in (*forwarded, *((("Authorization", f"Bearer {token}"),) if token else ())):
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    heard = Heard(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    connection.close()
    return heard


def flooded(service: Served, peer: str, *forwarded: tuple[str, str]) -> Heard:
    """Call until that is refused; `{}` in a header is another number each time."""
    for number in range(ENOUGH):
        told = [(name, value.replace("{}", str(number % 250))) for name, value in forwarded]
        heard = call(service, peer, *told)
        if heard.status != 401:
            return heard
    raise RuntimeError("nobody was slowed")


@pytest.mark.requirement("A35", "A36")
@pytest.mark.parametrize(
    ("peer", "flood", "other"),
    [
        (PROXY, ["X-Forwarded-For: 198.51.100.1"], "X-Forwarded-For: 198.51.100.2"),
        (PROXY, ["X-Forwarded-For: 1.1.1.{}, 198.51.100.3"], "X-Forwarded-For: 198.51.100.3, 198.51.100.4"),
        (PROXY, ["X-Forwarded-For: 1.1.1.{}", "X-Forwarded-For: 198.51.100.5"], "X-Forwarded-For: 198.51.100.6"),
        (PROXY, ["X-Forwarded-For: 1.1.1.{}, 198.51.100.7, 10.1.1.1, 10.2.2.2"], "X-Forwarded-For: 198.51.100.8"),
        (PROXY, ["X-Forwarded-For: [2001:db8:2::{}]:443"], "X-Forwarded-For: 2001:db8:3::1"),
        (PROXY, ["X-Forwarded-For: nonsense{}, 198.51.100.9:4711"], "X-Forwarded-For: 198.51.100.10:4711"),
        (PROXY, ['Forwarded: for=1.1.1.{}, for="198.51.100.11:80";proto=https'], "Forwarded: for=198.51.100.12"),
        (PROXY, ["X-Forwarded-For: ::ffff:198.51.100.13"], "X-Forwarded-For: ::ffff:198.51.100.14"),
        (STRANGER, ["X-Forwarded-For: 1.1.1.{}"], None),
        ("127.0.0.3", ["Forwarded: for=1.1.1.{}", "X-Real-IP: 1.1.1.{}"], None),
    ],
    ids=lambda one: str(one)[:60],
)
def test_a_flood_is_counted_by_the_address_that_our_own_proxies_saw(
    behind: Served, peer: str, flood: list[str], other: str | None
) -> None:
    """
    429 with whole seconds once there were too many from it, whatever stands to its left; the next address is not
    slowed. Who is no proxy of ours is counted by its own address. A valid token is let in, from either.
    """
    headers = [(name, value) for name, value in (one.split(": ", 1) for one in flood)]
    told = [(name, value.replace("{}", "1")) for name, value in headers]

    refused = flooded(behind, peer, *headers)
    known = {call(behind, peer, *told, token=behind.token).status for _ in range(20)}
    beside = call(behind, peer, (*other.split(": ", 1),)).status if other else call(behind, "127.0.0.9").status  # type: ignore[arg-type]

    assert (refused.status, refused.code) == (429, "rate_limited")
    assert re.fullmatch("[1-9][0-9]*", refused.headers["retry-after"])
    assert known == {200}
    assert beside in (401, 429) if other is None else beside == 401


@pytest.mark.parametrize(
    "headers",
    [
        ["X-Forwarded-For: nonsense"],
        ["X-Forwarded-For: "],
        ["X-Forwarded-For: 198.51.100.20,"],
        ["X-Forwarded-For: 127.1"],
        ["X-Forwarded-For: 0x7f.1"],
        ["X-Forwarded-For: 198.51.100.20:99999"],
        ["X-Forwarded-For: fe80::1%eth0"],
        ["X-Forwarded-For: 198.51.100.20 10.0.0.1"],
        ["Forwarded: by=10.0.0.1"],
        ["Forwarded: for=198.51.100.20; for=198.51.100.21"],
        ["X-Forwarded-For: 198.51.100.20", "Forwarded: for=198.51.100.21"],
    ],
    ids=str,
)
def test_what_our_proxy_should_not_have_written_is_refused(behind: Served, headers: list[str]) -> None:
    """
    400 in words, with a token or without one: a proxy that is set up wrongly is found out, and nobody mistaken.
    """
    told = [(name, value) for name, _, value in (one.partition(": ") for one in headers)]

    answers = [call(behind, PROXY, *told, token=token) for token in ("", behind.token)]

    assert [(one.status, one.code) for one in answers] == [(400, "request_invalid")] * 2


def test_from_a_stranger_the_same_headers_mean_nothing(behind: Served) -> None:
    """
    Not even that they are odd.
    """
    assert call(behind, STRANGER, ("X-Forwarded-For", "nonsense"), token=behind.token).status == 200
