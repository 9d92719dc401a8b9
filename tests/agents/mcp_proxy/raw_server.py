"""
A server of a few lines that speaks JSON-RPC on stdio, for what no SDK would do: exit codes, signals, bytes.

Every call is a line in the file `effects`. What a tool does is its name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def out(data: bytes) -> None:
    """Write a line."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def main() -> int:
    """Answer until stdin ends; the exit code is 7."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
    sys.stderr.write("a line on stderr\n")
    sys.stderr.flush()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") != "tools/call":
            out(b'{"echo":' + line.strip() + b"}\n")
            continue
        tool = message["params"]["name"]
        with Path("effects").open("a") as effects:
            effects.write(f"{tool}\n")
        if tool == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if tool == "exit":
            return 5
        if tool == "flood":
            out(b"x" * (65 * 1024 * 1024) + b"\n")
        if tool in ("hang", "flood"):
            out(b'{"jsonrpc":"2.0","method":"notifications/hangs"}\n')
            parent = os.getppid()
            while os.getppid() == parent:  # Nothing that a test starts may outlive it.
                time.sleep(0.05)
            os._exit(9)
        out(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}).encode() + b"\n")
    return 7


if __name__ == "__main__":
    sys.exit(main())
