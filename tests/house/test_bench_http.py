"""The HTTP benchmark looks at every answer, and times nothing that is wrong. No times are judged here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = """
from starlette.middleware import Middleware
from bench.http_app import application

def twice(folder, address):
    '''Nobody stands in front of it.'''
    return application()

class Unmarked:
    def __init__(self, app):
        self.app, self.kept = app, {}

    async def __call__(self, scope, receive, send):
        '''Replays, and does not say so.'''
        key = dict(scope["headers"]).get(b"idempotency-key")
        if key not in self.kept:
            messages = []
            async def keep(message):
                messages.append(message)
            await self.app(scope, receive, keep)
            if key is None:
                return [await send(message) for message in messages]
            self.kept[key] = messages
        for message in self.kept[key]:
            await send(message)

def unmarked(folder, address):
    return application([Middleware(Unmarked)])
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "planted_apps.py").write_text(PLANTED)
    yield


@pytest.mark.parametrize(
    "place",
    [
        "bench.http_app:bare",
        "bench.adapters.http_ours:ours",
        "bench.adapters.http_raw:sqlite",
        "bench.adapters.http_rules:sqlite",
    ],
)
@pytest.mark.dose(2)
def test_requests_are_counted(place: str, tmp_path: Path) -> None:
    """
    The bare application and ours: requests are answered, and the server's CPU time is more than nothing.
    """
    from bench.interleave import Worker

    worker = Worker(
        "http", sys.executable, "bench.http_slices:HttpSlices", tmp_path, place, "shared", "sqlite:///{folder}/kept.db"
    )
    try:
        slices = [worker.ask(f"slice {case} 1") for case in ("fresh_http", "replay_http")]
        counted = worker.ask("count replay_http 50")
    finally:
        worker.quit()

    assert all(one["operations"] >= 1 and one["cpu"] > 0 for one in slices)
    assert counted["operations"] == 50


@pytest.mark.parametrize(
    ("name", "complaint"), [("twice", "4 effects for one key"), ("unmarked", "500 wrong answers of 500")]
)
def test_what_does_not_replay_is_not_timed(name: str, complaint: str, tmp_path: Path) -> None:
    """
    A server that runs a key again, or that does not say that an answer is a replay, is broken and not compared.
    """
    from bench.interleave import Worker, WorkerFailed

    with pytest.raises(WorkerFailed, match=complaint):
        Worker(
            name,
            sys.executable,
            "bench.http_slices:HttpSlices",
            tmp_path,
            f"planted_apps:{name}",
            "shared",
            "memory://",
        )


def test_a_crowd_of_duplicates_is_one_execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A small crowd sends one key at once: one execution, everybody has the same answer. The bench sends a thousand.
    """
    from bench import crowd

    monkeypatch.setattr(crowd, "DUPLICATES", 60)
    monkeypatch.setattr(crowd, "TIMES", 2)

    found = crowd.run({"sqlite": "sqlite:///{folder}/ours.db"}, tmp_path)

    assert (found["sqlite"]["effects"], found["sqlite"]["answered"]) == ([1, 1], [60, 60])
