"""
Tests that look at clocks, wait, or have threads, beside a load: does any of them depend on how busy the machine is?

    python tools/loaded.py                       every test that is marked `timing`, three times
    python tools/loaded.py --times 1 tests/service/sql   some of them, once
    python tools/loaded.py --load 0              without the load, to compare

The load is three busy processes for each core. They end with this one, also if it is killed: each looks now and then
who its parent is. Exit code 1: a test failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORES = os.cpu_count() or 1
BURN = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for number in range(1_000_000):
        number * number
"""


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many busy processes, for as long as the block takes."""
    # Told whose they are: one that looked for itself could begin after whoever started it had gone, and never end.
    command = [sys.executable, "-S", "-E", "-c", BURN, str(os.getpid())]
    burners = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Run the tests marked `timing` beside a load.")
    parser.add_argument("tests", nargs="*", default=["tests"], help="files, folders or options for pytest (tests)")
    parser.add_argument("--times", type=int, default=3, help="how often (3)")
    parser.add_argument("--load", type=int, default=3 * CORES, help=f"busy processes ({3 * CORES})")
    parser.add_argument("--jobs", type=int, default=CORES + 1, help=f"workers of pytest ({CORES + 1})")
    options, more = parser.parse_known_args(arguments)
    # Asked to end, it ends its load first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(options.jobs), "-m", "timing", *more, *options.tests]
    failed = 0
    with burning(options.load):
        for number in range(1, options.times + 1):
            began = time.monotonic()
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
            failed += code != 0
            took = time.monotonic() - began
            print(
                f"[{number}/{options.times}] {'FAILED' if code else 'passed'} beside {options.load} busy processes, "
                f"in {took:.0f} s",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
