"""
Landlock: a process says which files it will ever touch again, and Linux holds it to that. No privilege is needed.

Three system calls, by their numbers, because neither Python nor glibc has them. The numbers are those of every machine.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_ASK_VERSION = 1
_BENEATH = 1
_RULE = struct.Struct("=Qi")
_ATTRIBUTES = struct.Struct("=QQQ")
_SIZES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
"""How much of the attributes each version knows; later ones know all three."""

WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 1 << 1, 1 << 2, 1 << 3, 1 << 5, 1 << 7, 1 << 8
TRUNCATE = 1 << 14
DATABASES = WRITE_FILE | READ_FILE | READ_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE
"""What a worker does in the folder of databases. No links, no devices, no sockets, and nothing is executed."""

_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights over files each version knows; later ones know sixteen."""
_TCP = 0b11
_SCOPES = 0b11
"""Abstract sockets and signals: those of other processes are out of reach."""


def landlock_version() -> int:
    """Which version of Landlock this system has; 0 if it has none, or has it switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(_system_call(_CREATE, None, 0, _ASK_VERSION), 0)


class LandlockRules:
    """Rules that are made while files can still be opened, and enforced later: `restrict` is for good."""

    def __init__(self, folder: str) -> None:
        version = landlock_version()
        if not version:
            raise OSError("this system has no Landlock")
        handled = (1 << _FILE_RIGHTS.get(version, 16)) - 1
        attributes = _ATTRIBUTES.pack(handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
        size = _SIZES.get(version, _ATTRIBUTES.size)
        self._rules = _checked(_system_call(_CREATE, attributes, size, 0))
        try:
            place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = _RULE.pack(DATABASES & handled, place)
                _checked(_system_call(_ADD, self._rules, _BENEATH, rule, 0))
            finally:
                os.close(place)
        except BaseException:
            self.close()
            raise

    def restrict(self) -> None:
        """From now on. The process must have given up new privileges before."""
        _checked(_system_call(_RESTRICT, self._rules, 0))

    def close(self) -> None:
        """Let go of the rules; those that are in force stay."""
        os.close(self._rules)


def _system_call(number: int, *values: int | bytes | None) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    taken = [ctypes.c_long(one) if isinstance(one, int) else one for one in values]
    return int(library.syscall(ctypes.c_long(number), *taken))


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
