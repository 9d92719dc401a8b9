"""
Whether an error came out of the first call that a function made: then it is known which call it is about.

A verdict such as "not sent" speaks for one call. In a function that nobody has marked, that proves nothing about the
function, unless the call that failed is the first one that it made: before it there was nothing that could have had an
effect. That is read from the error's traceback and the code of the functions on it, when something has failed:

    lambda: payments.call(charge, order)              one call, and it was refused: nothing happened
    reserve(order); payments.call(charge, order)      refused, too, and `reserve` has happened: proves nothing

Every function on the way, from the operation's own to the library that raised, must be seen to have made one call: the
next one on the way. Reading names and attributes, building data and comparing count for nothing; whatever else there is
(a loop, a `with`, an assignment to an attribute or an item, an import, another call) could have had an effect.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from sys import stdlib_module_names, version_info
from types import CodeType, FrameType, MethodType, TracebackType
from typing import Any, Final, NamedTuple

OURS: Final = frozenset({"_core", "client", "gate", "http", "retry", "runtime"})
"""Our own parts that call and are called, and have no effect by themselves."""

CLIENTS: Final = frozenset(
    {
        "aiohttp",
        "anthropic",
        "h11",
        "h2",
        "http",
        "httpcore",
        "httpcore2",
        "httpx",
        "httpx2",
        "openai",
        "requests",
        "socket",
        "ssl",
        "stripe",
        "urllib",
        "urllib3",
    }
)
"""Packages that do nothing but carry a request: what they do below the call is part of that call."""

_HARMLESS: Final = (
    "BUILD_",
    "COMPARE_OP",
    "CONTAINS_OP",
    "CONVERT_VALUE",
    "COPY",
    "FORMAT_",
    "IS_OP",
    "JUMP_FORWARD",
    "KW_NAMES",
    "LOAD_",
    "MAKE_",
    "NOP",
    "NOT_TAKEN",
    "POP_JUMP_",
    "POP_TOP",
    "PRECALL",
    "PUSH_NULL",
    "RESUME",
    "RETURN_GENERATOR",
    "SET_FUNCTION_ATTRIBUTE",
    "STORE_DEREF",
    "STORE_FAST",
    "SWAP",
    "TO_BOOL",
    "UNARY_NOT",
)
"""Instructions that read, build and choose. Any other that is not an awaiting or a call could have had an effect."""

_NULL_FIRST: Final = version_info < (3, 13)
"""Whether what marks a callee that is no method stands before it, and not behind it."""

_AWAITING: Final = frozenset(
    {"CACHE", "END_SEND", "EXTENDED_ARG", "GET_AWAITABLE", "JUMP_BACKWARD_NO_INTERRUPT", "SEND", "YIELD_VALUE"}
)
_CALLS: Final = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


def is_about_the_first_call(error: BaseException) -> bool:
    """Whether nothing can have happened before the call that this error came out of."""
    frames = list(_frames(error.__traceback__))
    in_client = in_library = False
    for number, (frame, at) in enumerate(frames):
        package, _, rest = str(frame.f_globals.get("__name__", "")).partition(".")
        # A client's helpers from the standard library (contextlib, for one) are part of what it does.
        in_client = package in CLIENTS or (in_client and package in stdlib_module_names)
        in_library = in_client or (package == "onceward" and rest.partition(".")[0] in OURS)
        if in_library:
            continue
        if number + 1 == len(frames) or not _made_one_call(frame, at, frames[number + 1][0]):
            return False
    return in_library  # If not, it was raised by hand: whoever did that may have done something before.


def _frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _made_one_call(frame: FrameType, at: int, below: FrameType) -> bool:
    """Whether this frame, stopped there, has called nothing but the frame below it."""
    callee = _only_call(frame.f_code, at)
    if callee is None:
        return False
    found = _value(frame, callee)
    code = getattr(found.__func__ if isinstance(found, MethodType) else found, "__code__", None)
    # By its name where the object that it belongs to is not known: `client.post` goes on in `post`.
    if code is not None or not callee.is_attribute:
        return code is below.f_code
    return callee.name == below.f_code.co_name


class _Callee(NamedTuple):
    """What a call calls, as far as its code says."""

    name: str
    by: str
    """The instruction that loads it."""

    @property
    def is_attribute(self) -> bool:
        """Whether it belongs to some object, which the code does not show."""
        return "ATTR" in self.by or "METHOD" in self.by


def _value(frame: FrameType, callee: _Callee) -> Any:
    if "GLOBAL" in callee.by or "NAME" in callee.by:
        return frame.f_globals.get(callee.name, frame.f_builtins.get(callee.name))
    return None if callee.is_attribute else frame.f_locals.get(callee.name)


@lru_cache(maxsize=1024)
def _only_call(code: CodeType, at: int) -> _Callee | None:
    """What the one call up to this place calls; None if there is not one, or if something else could have acted."""
    calls, callees = 0, list[_Callee]()
    above, loaded = "", _Callee("", "")
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if instruction.offset > at:
            if name.startswith("JUMP_BACKWARD") and name not in _AWAITING and _target(instruction) <= at:
                return None  # A loop: what comes later in the text may have come before.
            continue
        if name in _CALLS:
            calls += 1
        elif name not in _AWAITING and not name.startswith(_HARMLESS):
            return None
        marked = name == "LOAD_METHOD" or "NULL" in instruction.argrepr or (_NULL_FIRST and above == "PUSH_NULL")
        if name.startswith("LOAD_") and (marked or (above == "callee" and name == "LOAD_ATTR")):
            if above == "callee":
                callees.pop()  # `module.function`: first the one, then the other.
            callees.append(_Callee(str(instruction.argval), name))
            above = "callee"
        elif name == "PUSH_NULL" and not _NULL_FIRST:
            callees.append(loaded)
            above = "callee"
        elif name not in ("CACHE", "EXTENDED_ARG"):
            above = name
        loaded = _Callee(str(instruction.argval), name)
    return callees[0] if calls == 1 and len(callees) == 1 else None


def _target(instruction: dis.Instruction) -> int:
    return instruction.argval if isinstance(instruction.argval, int) else 0
