"""Whose address a call came from, and how floods from one address are slowed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import ConfigurationError
from onceward.errors import RequestInvalid
from onceward.service.access import FloodControl, client_address, trusted_networks
from onceward.service.access.addresses import flood_address
from onceward.service.access.flood_control import BucketLevel, take_call

PROXIES = trusted_networks(["10.0.0.0/8", "2001:db8:1::/48"])


def seen(peer: str, *, xff: str | None = None, forwarded: str | None = None, trust: Any = PROXIES) -> str:
    """The caller's address, for headers as given."""
    headers = [("Host", "x"), *([("X-Forwarded-For", xff)] if xff is not None else [])]
    return client_address(peer, [*headers, *([("forwarded", forwarded)] if forwarded is not None else [])], trust)


class TestTheAddress:
    """Walked from the right, for as long as the proxies are ours."""

    def test_a_caller_cannot_name_itself(self) -> None:
        """
        Whoever is no trusted proxy is itself, whatever it sends.
        """
        assert seen("192.0.2.7", xff="198.51.100.1", forwarded="for=198.51.100.1") == "192.0.2.7"
        assert seen("10.0.0.1", xff="198.51.100.1", trust=()) == "10.0.0.1"

    @pytest.mark.parametrize(
        ("xff", "address"),
        [
            ("198.51.100.1", "198.51.100.1"),
            ("1.1.1.1, 198.51.100.1", "198.51.100.1"),
            ("junk, <script>, 198.51.100.1", "198.51.100.1"),
            ("198.51.100.1, 10.1.1.1, 10.2.2.2", "198.51.100.1"),
            ("1.1.1.1,198.51.100.1\t,10.1.1.1", "198.51.100.1"),
            ("198.51.100.1:4711", "198.51.100.1"),
            ("[2001:db8:2::1]:4711", "2001:db8:2::1"),
            ("2001:db8:2::1", "2001:db8:2::1"),
            ("2001:DB8:2:0::1, 2001:db8:1::9", "2001:db8:2::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
            ("10.1.1.1", "10.1.1.1"),
        ],
    )
    def test_x_forwarded_for(self, xff: str, address: str) -> None:
        """
        What a caller wrote stands to the left of what our proxies appended, and is not looked at.
        """
        assert address == seen("10.0.0.1", xff=xff)
        assert address == seen("::ffff:10.0.0.1", xff=xff)

    @pytest.mark.parametrize(
        ("forwarded", "address"),
        [
            ("for=198.51.100.1", "198.51.100.1"),
            ('For="198.51.100.1:4711";proto=https;by=10.0.0.1', "198.51.100.1"),
            ('for="[2001:db8:2::1]:4711"', "2001:db8:2::1"),
            ('for=1.1.1.1, for=198.51.100.1 , for="10.1.1.1"', "198.51.100.1"),
            ('for="a,for=1.1.1.1", for=198.51.100.1', "198.51.100.1"),
            ("for=unknown", "10.0.0.1"),
            ("for=_hidden, for=10.1.1.1", "10.1.1.1"),
        ],
    )
    def test_forwarded(self, forwarded: str, address: str) -> None:
        """
        RFC 7239, with quotes and ports; a proxy that hides an address stands for its callers.
        """
        assert address == seen("10.0.0.1", forwarded=forwarded)

    @pytest.mark.parametrize(
        "odd",
        [
            "",
            "198.51.100.1,",
            "198.51.100.01",
            "0x7f.1",
            "2130706433",
            "localhost",
            "198.51.100.1 198.51.100.2",
            "198.51.100.1:99999",
            "198.51.100.1:",
            "fe80::1%eth0",
            "[::1",
            "\uff11.1.1.1",
            "198.51.100.1\x00",
        ],
    )
    def test_an_odd_spelling_is_refused(self, odd: str) -> None:
        """
        Where it would be believed; it says that something between is configured wrongly.
        """
        with pytest.raises(RequestInvalid):
            seen("10.0.0.1", xff=odd)

    @pytest.mark.parametrize(
        "odd", ["", "proto=https", "for=", "for", "for=1.1.1.1;for=2.2.2.2", 'for="1.1.1.1', "for=2001:db8::1"]
    )
    def test_an_odd_element_is_refused(self, odd: str) -> None:
        """
        No `for`, two of them, a quote that does not end.
        """
        with pytest.raises(RequestInvalid):
            seen("10.0.0.1", forwarded=odd)

    def test_two_headers_that_disagree_are_refused(self) -> None:
        """
        One of them is a caller's own; where they agree, there is no question.
        """
        assert seen("10.0.0.1", xff="198.51.100.1", forwarded="for=198.51.100.1") == "198.51.100.1"
        with pytest.raises(RequestInvalid):
            seen("10.0.0.1", xff="198.51.100.1", forwarded="for=1.1.1.1")

    def test_several_fields_are_one_list(self) -> None:
        """
        In the order in which they came.
        """
        fields = [("X-Forwarded-For", "1.1.1.1"), ("x-forwarded-for", "198.51.100.1, 10.1.1.1")]

        assert client_address("10.0.0.1", fields, PROXIES) == "198.51.100.1"

    @given(st.text(max_size=60), st.text(max_size=60))
    def test_nothing_makes_it_fall_over(self, xff: str, forwarded: str) -> None:
        """
        Whatever comes, an address or a typed refusal.
        """
        try:
            assert seen("10.0.0.1", xff=xff, forwarded=forwarded)
        except RequestInvalid:
            return

    def test_a_network_has_to_be_one(self) -> None:
        """
        A host bit too many is a typo that would trust others.
        """
        with pytest.raises(ConfigurationError, match=r"10\.0\.0\.0/8"):
            trusted_networks(["10.0.0.1/8"])


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class TestFloods:
    """A bucket for each address."""

    def test_the_call_after_the_burst_is_told_when_to_come_again(self) -> None:
        """
        In whole seconds; who comes then is let through, once.
        """
        clock = Clock()
        flood = FloodControl(clock, burst=3, per_second=0.5)

        assert [flood.retry_after("192.0.2.1") for _ in range(5)] == [None, None, None, 2, 2]
        assert None is flood.retry_after("192.0.2.2")
        clock.now = 1.9
        assert flood.retry_after("192.0.2.1") == 1
        clock.now = 2.0
        assert [flood.retry_after("192.0.2.1") for _ in range(2)] == [None, 2]

    @given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5), st.floats(0.1, 10))
    def test_no_more_than_the_rate_gets_through(self, pauses: list[float], burst: int, per_second: float) -> None:
        """
        Over any time: the burst and what has flowed in since; and the wait that is told is enough.
        """
        level, now, through = BucketLevel(float(burst), 0.0), 0.0, 0
        for pause in pauses:
            now += pause
            level, wait = take_call(level, now, burst=burst, per_second=per_second)
            through += wait == 0
            assert through <= burst + now * per_second + 1e-6
            if wait:
                assert take_call(level, now + math.ceil(wait) + 1e-6, burst=burst, per_second=per_second).wait == 0

    def test_a_clock_that_goes_back_empties_no_bucket(self) -> None:
        """
        It only does not fill.
        """
        level = take_call(BucketLevel(2.0, 100.0), 50.0, burst=2, per_second=1).level

        assert BucketLevel(1.0, 50.0) == level

    def test_memory_is_bounded(self) -> None:
        """
        The address unseen for longest goes first; one that keeps coming stays known.
        """
        flood = FloodControl(Clock(), burst=1, addresses_max=100)
        flood.retry_after("192.0.2.1")
        for number in range(1000):
            flood.retry_after(f"10.{number >> 8}.{number & 255}.1")
            assert flood.retry_after("192.0.2.1") == 1

        assert len(flood) == 100

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("2001:db8::1", "2001:db8::ffff:ffff", True),
            ("2001:db8::1", "2001:db8:0:1::1", False),
            ("::ffff:192.0.2.1", "192.0.2.1", True),
            ("192.0.2.1", "192.0.2.2", False),
            ("a socket", "a socket", True),
        ],
    )
    def test_a_caller_is_an_address_or_a_64(self, one: str, other: str, same: bool) -> None:
        """
        Whoever has one IPv6 address has as many as it likes.
        """
        assert same is (flood_address(one) == flood_address(other))

    @pytest.mark.parametrize(
        "options", [{"burst": 0}, {"per_second": 0}, {"per_second": math.inf}, {"addresses_max": 0}]
    )
    def test_limits_have_to_be_limits(self, options: dict[str, Any]) -> None:
        """
        None of them may be nothing.
        """
        with pytest.raises(ConfigurationError):
            FloodControl(Clock(), **options)
