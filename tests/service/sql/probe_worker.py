"""
A worker with a door: `python probe_worker.py LINK PAGE`. The real one, with a command that tries what SQL never could.

It is what a tenant would have who has broken out of SQLite. Each probe says "through", or the name of what stopped it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onceward.service.sql import worker

_libc = ctypes.CDLL(None, use_errno=True)
_AT_START: set[str] = set()


def _system_call(number: int, *values: int) -> None:
    if _libc.syscall(number, *(ctypes.c_long(one) for one in values)) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _connect(family: int, address: Any, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(family, kind) as made:
        made.settimeout(5)
        made.connect(address)


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _new_code() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()


def _link(target: str) -> None:
    planted = Path("planted")
    planted.symlink_to(target)
    planted.unlink()


def _trace_nobody() -> None:
    """Attach to a process that cannot be: who may trace is told that there is none. (One that is would be stopped.)"""
    try:
        _system_call({"x86_64": 101}.get(os.uname().machine, 117), 16, 2**22 + 1)
    except ProcessLookupError:
        return


def _write(path: str) -> None:
    Path(path).open("ab").close()


PROBES: dict[str, Callable[[dict[str, Any]], object]] = {
    "read /etc/passwd": lambda given: Path("/etc/passwd").read_bytes(),
    "read the service's file": lambda given: Path(given["secret"]).read_bytes(),
    "write the service's file": lambda given: _write(given["secret"]),
    "list /": lambda given: next(one for one in Path("/").iterdir() if one.name in ("etc", "usr")),
    "make a symbolic link": lambda given: _link("/etc/passwd"),
    "connect over TCP": lambda given: _connect(socket.AF_INET, ("127.0.0.1", given["port"])),
    "connect over UDP": lambda given: _connect(socket.AF_INET, ("127.0.0.1", given["port"]), socket.SOCK_DGRAM),
    "make a Unix socket": lambda given: socket.socketpair(),
    "run a program": lambda given: subprocess.run(["/bin/true"], check=True, env={}),
    "fork": lambda given: _fork(),
    "signal the service": lambda given: os.kill(given["service"], 0),
    "trace a process": lambda given: _trace_nobody(),
    "read the service's memory": lambda given: Path(f"/proc/{given['service']}/mem").open("rb").close(),
    "write new code": lambda given: _new_code(),
    "become root": lambda given: os.setuid(0),
    "read the service's environment": lambda given: os.environ[given["variable"]],
    "read another tenant's database": lambda given: Path(given["other"]).read_bytes(),
}


def probe(self: Any, path: Path, *_: object) -> dict[str, str]:
    """Every probe. What they need to know lies where the database would."""
    import json

    given = json.loads(path.read_text())
    given["other"] = str(path)
    told = {}
    for name, attempt in PROBES.items():
        try:
            attempt(given)
            told[name] = "through"
        except OSError as error:
            told[name] = errno.errorcode.get(error.errno or 0, "OSError")
        except (KeyError, StopIteration, subprocess.SubprocessError) as error:
            told[name] = type(error).__name__
    return told


def imported(self: Any, *_: object) -> list[str]:
    """What has been imported since the worker was ready."""
    return sorted(set(sys.modules) - _AT_START)


def identity(self: Any, *_: object) -> int:
    """Who this is."""
    return os.getpid()


def main() -> None:
    """As the worker's own."""
    for kind in (worker.DatabaseReader, worker.DatabaseWriter):
        for method in (probe, imported, identity):
            setattr(kind, method.__name__, method)
    import json  # noqa: F401 - before the doors close

    enter = worker.enter_sandbox

    def entered(orders: Any) -> Any:
        told = enter(orders)
        _AT_START.update(sys.modules)
        return told

    worker.enter_sandbox = entered
    worker.main(sys.argv[1:])


if __name__ == "__main__":
    main()
