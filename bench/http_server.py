"""
One worker of uvicorn (httptools, uvloop) around one application, in a process of its own.

    python -m bench.http_server module:factory FOLDER ADDRESS

Says its port in a line on stdout, and ends when whoever started it is gone.
"""

from __future__ import annotations

import ctypes
import importlib
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

_PR_SET_PDEATHSIG = 1
KEEP_ALIVE_SECONDS = 3600
"""Connections last as long as the run: between two slices of one adapter all the others have theirs."""


def main() -> None:
    """Serve until killed."""
    # Stopped processes do not see that a pipe was closed, so the kernel is asked to see to it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    place, folder, address = sys.argv[1:]
    module, _, name = place.partition(":")
    app: Any = getattr(importlib.import_module(module), name)(Path(folder), address)
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        lifespan="auto",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
