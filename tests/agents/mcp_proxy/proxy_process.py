"""
`onceward mcp` in a process that is killed once, at the failpoint `PROXY_FAILPOINT`, after `PROXY_SKIP` hits of it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from onceward.cli import main
from onceward.runtime import failpoints, flow_driver


def kill_once() -> None:
    """Be killed, unless that has happened before."""
    marker = Path(os.environ["SHOP_FOLDER"]) / "killed"
    if not marker.exists():
        marker.write_text("proxy\n")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    (Path(os.environ["SHOP_FOLDER"]) / "proxy.pid").write_text(str(os.getpid()))
    if name := os.environ.get("PROXY_FAILPOINT"):
        assert flow_driver  # It has declared the failpoints.
        failpoints.arm(name, kill_once, skip=int(os.environ.get("PROXY_SKIP", "0")))
    sys.exit(main(["mcp", *sys.argv[1:]]))
