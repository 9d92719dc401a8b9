"""
Targets of the Makefile, one after the other, each to its end whatever became of those before; then who failed.

    python tools/tiers.py test racers soak

Exit code 1: one of them failed.
"""

from __future__ import annotations

import subprocess
import sys
import time


def main(targets: list[str]) -> int:
    """Run each with make; a line for each at the end."""
    ends: list[tuple[str, int, float]] = []
    for target in targets:
        print(f"=== make {target}", flush=True)
        began = time.monotonic()
        code = subprocess.run(["make", "--no-print-directory", target], check=False).returncode
        ends.append((target, code, time.monotonic() - began))
    print()
    for target, code, took in ends:
        print(f"{'FAILED' if code else 'passed':<8}{target:<16}{took / 60:6.1f} min")
    failed, minutes = sum(code != 0 for _, code, _ in ends), sum(took for _, _, took in ends) / 60
    print(f"{len(ends)} targets, {failed} failed, {minutes:.1f} min")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
