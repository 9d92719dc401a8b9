"""
Two replicas of the service on a primary with a standby; the primary is killed under load, and the standby takes over.

`make test-ha` has more keys and more failovers; `make failover-data` keeps what happened for the picture in the docs.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from failover_load import AROUND_SECONDS, BUCKET_SECONDS, CLIENTS, TABLE, Load, Verdict
from service_support import PEPPER, Served

from onceward.service.sql.postgres.preparation import ROLE
from servers.postgres import PostgresServer, needed
from servers.postgres_pair import PAUSE_SECONDS, Pair, at, pair, primary, until
from servers.proxy import Proxy
from servers.tenants import prepare

needed()

__all__ = ["pair", "primary"]

ALL = os.environ.get("FAILOVERS") == "all"
KEYS = 4_000 if ALL else 300
ROUNDS = 5 if ALL else 1
DATABASE = "tenants"
KEPT = os.environ.get("FAILOVER_DATA")
"""Where to keep what happened, for `tools/pictures.py`."""


@contextmanager
def replicas(pair: Pair, folder: Path) -> Iterator[list[Served]]:
    """Two processes of the service, which know both servers and ask for the one that takes writes."""
    url = pair.url("target_session_attrs=read-write&connect_timeout=2", database=DATABASE, user=ROLE)
    with ExitStack() as stack:
        started: list[Served] = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            started.append(Served.started(folder / name, "--sql", url, "--flood-burst", "1000000", **PEPPER))
            stack.callback(started[-1].stop)
        started[1].token = started[0].token = started[0].token or started[1].token
        yield started


def fail_over_under_load(pair: Pair, served: Sequence[Served], path: str, story: str) -> Verdict:
    """Kill the primary when half of the keys are acknowledged, and go on until all are; what the judge says."""
    load = Load(served, path)
    try:
        until(lambda: len(load.acknowledged) >= KEYS // 2 or load.refused)
        killed_at = time.monotonic()
        pair.fail_over()
        until(lambda: len(load.acknowledged) >= KEYS or load.refused)
    finally:
        load.stop()
    assert load.refused == {}
    verdict = load.judge(pair.standby, DATABASE)
    print(
        f"{story}: acknowledged {verdict.acknowledged}, lost {verdict.lost}, doubled {verdict.doubled}, other answers "
        f"{verdict.changed}, longest wait {verdict.longest_seconds:.2f} s, sent again {dict(verdict.sent_again)}"
    )
    if KEPT:
        keep(Path(KEPT), story, verdict, load.answers_around(killed_at))
    return verdict


def keep(file: Path, story: str, verdict: Verdict, answers: list[int]) -> None:
    """Add a failover to the file that the picture is drawn from."""
    kept = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"renew": "make failover-data", "runs": {}}
    )
    kept["runs"][story] = {
        **verdict._asdict(),
        "longest_seconds": round(verdict.longest_seconds, 2),
        "clients": CLIENTS,
        "promoted_after_seconds": PAUSE_SECONDS,
        "bucket_seconds": BUCKET_SECONDS,
        "around_seconds": AROUND_SECONDS,
        "answers": answers,
    }
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


@pytest.mark.slow
class TestAPrimaryThatIsKilled:
    """kill -9 under load, and the standby is promoted."""

    @pytest.mark.parametrize("turn", range(ROUNDS))
    def test_with_a_synchronous_standby_nothing_is_lost_and_nothing_doubled(
        self, pair: Pair, tmp_path: Path, turn: int
    ) -> None:
        """
        "acknowledged lost 0, doubled 0, every acknowledged key replays the same answer on the new primary"
        """
        prepare(pair.primary, DATABASE)
        with replicas(pair, tmp_path) as served:
            path = served[0].database(table=TABLE)
            verdict = fail_over_under_load(pair, served, path, f"synchronous standby, turn {turn}")

        assert (verdict.lost, verdict.doubled, verdict.changed) == (0, 0, 0)
        assert verdict.acknowledged >= KEYS
        assert verdict.longest_seconds >= PAUSE_SECONDS, "nobody sent anything while there was no primary"

    def test_with_an_asynchronous_standby_that_lags_the_judge_finds_what_is_lost(
        self, primary: PostgresServer, tmp_path: Path
    ) -> None:
        """
        The judge can say no: what was acknowledged while the line to the standby was held is gone.
        """
        prepare(primary, DATABASE)
        with Proxy(primary.port) as line:
            standby = at(tmp_path / "standby", standby_of=line.port)
            standby.start()
            pair = Pair(primary, standby)
            with replicas(pair, tmp_path) as served:
                path = served[0].database(table=TABLE)
                until(pair.is_caught_up)
                line.hold()
                verdict = fail_over_under_load(pair, served, path, "asynchronous standby, held")
            standby.stop()

        assert verdict.lost >= KEYS // 2
        assert verdict.changed >= verdict.lost
