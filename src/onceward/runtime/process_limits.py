"""
Limits that a process puts itself under, for good, before it looks at bytes of strangers'.
"""

from __future__ import annotations


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
