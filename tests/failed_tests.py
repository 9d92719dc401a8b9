"""Leaves word of what failed in a run, for `tools/second_look.py`."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note the tests that failed, and whether each proves a requirement."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or getattr(session.config, "cache", None) is None:
        return  # A worker, or a run that is to leave nothing.
    failed = [*reporter.stats.get("failed", []), *reporter.stats.get("error", [])]
    proofs = {one.nodeid: _is_proof(one) for one in failed}
    seed = session.config.getoption("randomly_seed", None)  # It chooses which faults are planted, too.
    session.config.cache.set("onceward/failed", {"seed": seed if isinstance(seed, int) else None, "failed": proofs})


def _is_proof(report: Any) -> bool:
    """Whether a test is marked with a requirement; a file that cannot be collected is no test."""
    return any(name == "requirement" for name, _ in getattr(report, "user_properties", ()))
