"""
Imports a user's modules in another process, and asks the functions declared there for their contracts.

Importing runs code, so it is done only when somebody names a module, and never in this process: one that hangs, exits,
forks, prints without end or raises is a sentence here. When the report is there, or the time is over, the process and
whatever it started are ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from onceward._core.display_text import escape_invisible
from onceward._core.errors import ConfigurationError
from onceward.doctor.code_facts import OperationFact
from onceward.doctor.key_sentences import place_of_module
from onceward.runtime.environment import REAL

SECONDS: Final = 30.0
"""For all modules together: frameworks take a few."""
REPORT_BYTES_MAX: Final = 4_000_000


def import_operations(modules: Sequence[str], seconds: float = SECONDS) -> list[OperationFact]:
    """What the functions that some modules declare have agreed on. Raises ConfigurationError with what went wrong."""
    for module in modules:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ConfigurationError(f"{module!r} is not a module name. Write it as in `import`: shop.payments")
    command = [sys.executable, "-P", "-m", "onceward.doctor.import_process", *modules]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
    process = subprocess.Popen(  # noqa: S603 - our own command
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        report, ended = _read_report(process, seconds)
    finally:
        _end(process)
    if not report.endswith(b"\n"):
        raise ConfigurationError(_without_report(process, modules, seconds, ended=ended))
    return _operations(json.loads(report))


def _read_report(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bool]:
    """The one line of the report as far as it came, and whether the other side closed it."""
    report, until = b"", REAL.monotonic() + seconds
    if process.stdout is None:
        return report, True
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not report.endswith(b"\n") and len(report) <= REPORT_BYTES_MAX:
            left = until - REAL.monotonic()
            if left <= 0 or not selector.select(left):
                return report, False
            piece = os.read(process.stdout.fileno(), 65_536)
            if not piece:
                return report, True
            report += piece
    return report, False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _without_report(process: subprocess.Popen[bytes], modules: Sequence[str], seconds: float, *, ended: bool) -> str:
    named = ", ".join(modules)
    if ended:
        return (
            f"importing {named} ended the process (exit code {process.returncode}), so its operations are not known. "
            'Put what runs under `if __name__ == "__main__":`'
        )
    return (
        f"importing {named} took longer than {seconds:g} s, and was ended. Put what runs or waits under "
        '`if __name__ == "__main__":`, or allow more with --seconds'
    )


def _operations(report: Any) -> list[OperationFact]:
    if "error" in report:
        raise ConfigurationError(escape_invisible(str(report["error"])))
    return [
        OperationFact(
            place=place_of_module(one["module"]),
            name=one["operation"],
            identified_by=tuple(one["identified_by"]),
            compared_by=tuple(one["compared_by"]),
            guarantee=one["guarantee"],
            retain_seconds=one["retain_seconds"],
            tombstone_seconds=one["tombstone_seconds"],
            scope=one["scope"],
        )
        for one in report["operations"]
    ]
