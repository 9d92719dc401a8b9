"""
Packs Redis commands into bytes, as they are sent.

hiredis makes text of numbers by calling back into Python, and a signal handler that raises there (Ctrl-C) crashes the
process. So words and numbers are spelt here, before it is called; also those that redis-py sends when it connects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

Arg = bytes | str | int


def _packer() -> Callable[[tuple[bytes, ...]], bytes] | None:
    """A speed-up, if it is there; the bytes are the same without it."""
    try:
        from hiredis import pack_command
    except ImportError:
        return None
    return cast("Callable[[tuple[bytes, ...]], bytes]", pack_command)


hiredis_pack = _packer()


def encode_args(args: Sequence[Arg]) -> tuple[bytes, ...]:
    """The words of a command as bytes."""
    return tuple(
        [arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg for arg in args]
    )


def pack_args(args: Sequence[Arg] | bytes) -> bytes:
    """One command as it is sent; bytes are one that is packed already."""
    if isinstance(args, bytes):
        return args
    words = encode_args(args)
    if hiredis_pack is not None:
        return hiredis_pack(words)
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)])


class CommandPacker:
    """How redis-py packs what it sends by itself, when it connects and logs in."""

    def pack(self, *args: Any) -> list[bytes]:
        """One command; its name may be two words in one text."""
        name, *rest = args
        names = name.split() if isinstance(name, str | bytes) else [name]
        return [pack_args([*names, *(arg if isinstance(arg, bytes | str | int) else str(arg) for arg in rest)])]
