"""A worker's identity is its scope; which version of it tried is told by the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward import Gate
from onceward.journal import Journal


@pytest.mark.requirement("B46")
@pytest.mark.fault("a-journal-does-not-say-which-version-tried")
def test_a_deploy_keeps_the_scope_and_the_journal_tells_the_versions(tmp_path: Path) -> None:
    """
    The same operation before and after a deploy: it runs once, and both versions of the worker are on record.
    """
    url, runs = f"sqlite:///{tmp_path}/agent.db", []
    for version in ("reconciler-v1", "reconciler-v2"):
        with Journal(url, scope="live:reconciler", worker=version) as journal:
            with Gate(url, scope="live:reconciler", listeners=[journal.listener()]) as gate:
                gate.run("expense:1", lambda version=version: runs.append(version) or "booked")
            tried = [(call.worker, call.outcome) for call in journal.calls()]

    assert runs == ["reconciler-v1"]
    assert tried == [("reconciler-v1", "executed"), ("reconciler-v2", "replayed")]
