"""
Two hundred and fifty attacks on PostgreSQL by a tenant's SQL, and what becomes of them without each of the four layers.
"""

from __future__ import annotations

import asyncio

import pytest
from hostile_probes import PROBES, Probe
from layers import Layers, Prober, probing
from tenant_support import administrator

pytestmark = pytest.mark.dose(1, of="version")

QUICK = [probe for probe in PROBES if probe.after != "bombs"]
BOMBS = [probe for probe in PROBES if probe.after == "bombs"]

NEEDS_THE_PARSER = {
    "SET ROLE {other}",
    "SET LOCAL statement_timeout = 0",
    "LISTEN c",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "PREPARE p AS SELECT 1",
    "LOCK TABLE own",
    "CREATE UNLOGGED TABLE t (a int)",
    "SELECT current_user",
    "SET work_mem = '1GB'",
}
"""Nothing else stops these: a session's own affairs need no right."""
NEEDS_GRANTS = {"SELECT nextval('{other}.numbers')", "SELECT setval('{other}.numbers', 5)"}
"""The name is in a text, and no parser of SQL looks into that."""
NEEDS_THE_PROTOCOL = {"SELECT 1; SELECT 2", "SELECT 1;; COMMIT"}
NEEDS_LIMITS = "SELECT count(*) FROM own a, own b, own c, own d, own e, own f"


def test_there_are_enough_probes() -> None:
    """
    "At least 160 hostile probes of our own list"
    """
    assert len({probe.sql for probe in PROBES}) == len(PROBES) >= 160


class TestAllLayers:
    """As the service runs."""

    @pytest.mark.fault("pg-attributes-are-not-looked-at")
    @pytest.mark.fault("pg-any-schema-may-be-named")
    def test_no_probe_is_answered_and_nothing_is_left_behind(self, url: str) -> None:
        """
        The other tenant's rows are as they were, and so is the session that the probes came through.
        """

        async def story(prober: Prober) -> None:
            assert await prober.answered(QUICK) == []
            assert await prober.secret() == [["the secret"]]
            assert await prober.sequence() == 1

        probing(url, administrator(url), Layers(), story)

    def test_no_bomb_is_answered(self, url: str) -> None:
        """
        Each ends at its deadline or at a limit, as an error of its sender's.
        """

        async def story(prober: Prober) -> None:
            assert await prober.answered(BOMBS) == []
            assert await prober.secret() == [["the secret"]]

        probing(url, administrator(url), Layers(), story)


class TestWithoutOneLayer:
    """Each layer stops something that the others do not."""

    def test_without_the_parser(self, url: str) -> None:
        """
        A tenant could become another one, change its limits, and leave things in a session that the next one gets.
        """

        async def story(prober: Prober) -> None:
            through = set(await prober.answered(QUICK))
            assert through >= NEEDS_THE_PARSER
            assert not through & NEEDS_GRANTS
            assert not through & NEEDS_THE_PROTOCOL

        probing(url, administrator(url), Layers(parser=False), story)

    def test_without_grants(self, url: str) -> None:
        """
        A text that PostgreSQL takes for a name leads anywhere.
        """

        async def story(prober: Prober) -> None:
            assert set(await prober.answered(QUICK)) == NEEDS_GRANTS

        probing(url, administrator(url), Layers(grants=False), story)

    def test_without_the_extended_protocol(self, url: str) -> None:
        """
        Where the parser is taken in, one text would be several statements.
        """

        async def story(prober: Prober) -> None:
            probes = [probe for probe in PROBES if probe.sql in NEEDS_THE_PROTOCOL]
            assert set(await prober.answered(probes)) == NEEDS_THE_PROTOCOL

        probing(url, administrator(url), Layers(parser=False, protocol=False), story)

    def test_without_limits(self, url: str) -> None:
        """
        A bomb goes on for as long as it likes: it has not ended when it would have been ended.
        """

        async def story(prober: Prober) -> None:
            bomb = asyncio.create_task(prober.is_answered(Probe("bombs", NEEDS_LIMITS)))
            done, _ = await asyncio.wait((bomb,), timeout=3.0)
            assert not done
            bomb.cancel()
            await asyncio.wait((bomb,))

        probing(url, administrator(url), Layers(limits=False), story)
