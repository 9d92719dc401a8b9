"""
What to do about a test that failed in a full run: run it again, alone.

    python tools/second_look.py     after a run of pytest that ended with exit code 1

A full run keeps every core busy for a quarter of an hour, and thousands of tests share its servers. A test that fails
there and passes three times alone depends on that: it is named at the end, for somebody to mend, and the run passes.
Exit code 1, and no second look: more than three tests failed, or one of them proves a numbered requirement
(`@pytest.mark.requirement`). What we promise must hold on a busy machine, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED = Path(".pytest_cache/v/onceward/failed")
"""Written at the end of a run (`tests/failed_tests.py`): its seed, and of each failed test whether it is a proof."""
MOST = 3
TIMES = 3


def refusal(failed: dict[str, bool]) -> str:
    """Why these get no second look; empty if they do."""
    proofs = [name for name, is_proof in failed.items() if is_proof]
    if not failed:
        return "the run left no list of failed tests"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed, more than {MOST}"
    if proofs:
        return "it proves a requirement: " + ", ".join(proofs)
    return ""


def main() -> int:
    """Judge what the last run left."""
    try:
        left = json.loads(FAILED.read_text(encoding="utf-8"))
    except FileNotFoundError:
        left = {"seed": None, "failed": {}}
    failed: dict[str, bool] = left["failed"]
    reason = refusal(failed)
    if reason:
        print(f"no second look: {reason}")
        return 1
    print(f"a second look: {len(failed)} failed test(s), each {TIMES} times, alone", flush=True)
    seed = [] if left["seed"] is None else [f"--randomly-seed={left['seed']}"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *seed, *failed]
    for _ in range(TIMES):
        if subprocess.run(command, check=False).returncode:
            return 1
    print(f"UNSTEADY, to be mended: failed in the full run, passed {TIMES} times alone:")
    for name in failed:
        print(f"  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
