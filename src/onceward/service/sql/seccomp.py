"""
seccomp: a process says which system calls it will ever make again, and Linux refuses it all others.

The list is of what Python and SQLite need to work on files that lie there, in memory, in threads, and on a socket that
is open already. What is not listed is refused with EPERM: new sockets, programs, processes, signals to others, links,
mounts, tracing. Calls that are newer than the list get ENOSYS, so that a newer C library falls back to older ones.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Mapping
from typing import NamedTuple

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2

CALLS: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8,
        "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14,
        "rt_sigreturn": 15, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "select": 23,
        "sched_yield": 24, "mremap": 25, "msync": 26, "madvise": 28, "nanosleep": 35, "getpid": 39, "sendto": 44,
        "recvfrom": 45, "shutdown": 48, "clone": 56, "exit": 60, "uname": 63, "fcntl": 72, "flock": 73, "fsync": 74,
        "fdatasync": 75, "truncate": 76, "ftruncate": 77, "getcwd": 79, "rename": 82, "mkdir": 83,
        "unlink": 87, "readlink": 89, "chmod": 90, "fchmod": 91, "fchown": 93, "umask": 95, "gettimeofday": 96,
        "getrlimit": 97, "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
        "getegid": 108, "getppid": 110, "sigaltstack": 131, "statfs": 137, "fstatfs": 138, "gettid": 186,
        "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "restart_syscall": 219, "fadvise64": 221,
        "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "openat": 257,
        "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "readlinkat": 267, "fchmodat": 268,
        "faccessat": 269, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "utimensat": 280, "fallocate": 285,
        "prlimit64": 302, "renameat2": 316, "getrandom": 318, "membarrier": 324, "statx": 332, "rseq": 334,
        "close_range": 436, "faccessat2": 439,
    },
    "aarch64": {
        "getcwd": 17, "fcntl": 25, "flock": 32, "mkdirat": 34, "unlinkat": 35, "renameat": 38, "statfs": 43,
        "fstatfs": 44, "truncate": 45, "ftruncate": 46, "fallocate": 47, "faccessat": 48, "fchmod": 52,
        "fchmodat": 53, "fchown": 55, "openat": 56, "close": 57, "getdents64": 61, "lseek": 62, "read": 63,
        "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68, "pselect6": 72, "ppoll": 73,
        "readlinkat": 78, "newfstatat": 79, "fstat": 80, "fsync": 82, "fdatasync": 83, "utimensat": 88, "exit": 93,
        "exit_group": 94, "futex": 98, "set_robust_list": 99, "nanosleep": 101, "clock_gettime": 113,
        "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
        "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
        "times": 153, "uname": 160, "getrlimit": 163, "getrusage": 165, "umask": 166, "gettimeofday": 169,
        "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178,
        "sysinfo": 179, "sendto": 206, "recvfrom": 207, "shutdown": 210, "brk": 214, "munmap": 215, "mremap": 216,
        "clone": 220, "mmap": 222, "fadvise64": 223, "mprotect": 226, "msync": 227, "madvise": 233,
        "prlimit64": 261, "renameat2": 276, "getrandom": 278, "membarrier": 283, "statx": 291, "rseq": 293,
        "close_range": 436, "faccessat2": 439,
    },
}  # fmt: skip
"""System calls that a worker may make, with their numbers on each machine that the filter is written for."""

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NEWEST = 439
"""The newest call of the list: what comes after it is answered as if this system did not have it."""
CLONE3 = 435

_THREAD = 0x10000
_EXECUTABLE = 0x4
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _EQUAL, _ABOVE, _HAS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16
_INSTRUCTION = struct.Struct("=HBBI")


class _Condition(NamedTuple):
    """Bits of an argument (the lower half of it) that must be set, or must not be, for the call to be allowed."""

    argument: int
    bits: int
    wanted: bool


_CONDITIONS = {
    "clone": _Condition(0, _THREAD, True),  # A thread, and never a process.
    "mmap": _Condition(2, _EXECUTABLE, False),  # No new code: every library is loaded by now.
    "mprotect": _Condition(2, _EXECUTABLE, False),
    "prlimit64": _Condition(0, 0xFFFFFFFF, False),  # Of itself only.
}


def seccomp_filter(machine: str) -> bytes:
    """The filter as a program of the kernel's; `KeyError` for a machine that it is not written for."""
    calls = CALLS[machine]
    program = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 1, 0, _MACHINES[machine]),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_EQUAL, 0, 1, CLONE3),  # Its flags are in memory, where a filter cannot look; `clone` is tried next.
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for name, number in sorted(calls.items(), key=lambda one: one[1]):
        condition = _CONDITIONS.get(name)
        if condition is None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
            continue
        passes, refused = (_ALLOW, _ERRNO | errno.EPERM) if condition.wanted else (_ERRNO | errno.EPERM, _ALLOW)
        program += [
            (_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * condition.argument),
            (_HAS, 0, 1, condition.bits),
            (_RETURN, 0, 0, passes),
            (_RETURN, 0, 0, refused),
        ]
    program += [
        # Above 0x40000000 x86 has its calls a second time.
        (_ABOVE, 0, 2, NEWEST),
        (_ABOVE, 1, 0, 0x3FFFFFFF),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM),
    ]
    return b"".join(_INSTRUCTION.pack(*one) for one in program)


def restrict_system_calls() -> None:
    """From now on, and for good. The process must have given up new privileges before."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in CALLS or sys.maxsize < 2**32:
        raise OSError(f"there is no filter for this machine ({machine})")
    program = seccomp_filter(machine)
    held = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION.size
    described = ctypes.create_string_buffer(struct.pack("@HP", count, ctypes.addressof(held)))
    process_control(_SET_SECCOMP, _FILTER, ctypes.addressof(described))


def give_up_privileges() -> None:
    """Nothing that this process runs gains privileges any more. Both Landlock and seccomp ask for that."""
    process_control(_NO_NEW_PRIVILEGES, 1)


def process_control(what: int, *values: int) -> None:
    """`prctl`, which Python does not have."""
    taken = [ctypes.c_ulong(one) for one in (*values, 0, 0, 0, 0)[:4]]
    if ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(what), *taken) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
