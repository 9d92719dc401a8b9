"""
Limits that a process puts itself under, for good, before it looks at bytes of strangers'; and its priority.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NICE = 10
"""Gets a tenth of what others get, if all want all there is."""


def limit_this_process(*, address_bytes: int, processor_seconds: int | None = None) -> None:
    """Memory, processor time, no core file, no file written. Where there are none to set (Windows), nothing is done."""
    try:
        import resource
    except ImportError:
        return
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, processor_seconds),
        (resource.RLIMIT_AS, address_bytes),
    ):
        if limit is None:
            continue
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def lower_priority() -> None:
    """
    Let the others have the processor first. Not only when nobody else wants it: an honest long query has to end.

    Where Linux shares the processor by session first (autogroup), a process's own niceness counts only inside of it.
    """
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))
