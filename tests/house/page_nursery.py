"""
A warm process that runs scripts from the documentation: it has imported the package, and forks for each of them.

    python -W error page_nursery.py     one line in for each script: {"file", "folder", "environment", "output"}
                                        one line out: how it ended

Starting Python and importing everything takes most of a second, and there are hundreds of scripts.
"""

from __future__ import annotations

import io
import json
import os
import runpy
import sys
import traceback
from typing import Any

import onceward  # noqa: F401 - warm


def main() -> None:
    """Fork for every line."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(order)
            return  # The child ends as any script does: threads are joined, what is registered runs.
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(order: dict[str, Any]) -> None:
    """Be that script."""
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = io.StringIO()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["file"]]
    sys.path[0] = order["folder"]
    try:
        runpy.run_path(order["file"], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
