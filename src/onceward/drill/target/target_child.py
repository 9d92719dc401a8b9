"""
One call of somebody's function, in a process of its own: looked at, traced line by line, or killed at one of them.

Places to be killed at are the gate's failpoints, if the function has a gate, and the lines of the function's own file,
each just before it runs. Whatever the function does to this process (it exits, forks, prints, hangs), the process is
the function's alone.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from onceward._core.codec import message_of, type_name
from onceward._core.errors import ConfigurationError, OncewardError
from onceward.drill.nursery_process import Pistol, Work
from onceward.drill.sender import LEFT_OUT
from onceward.gate.call_factory import CallFactory
from onceward.gate.function_inspection import find_published, is_async
from onceward.runtime import failpoints

EVENTS_MAX = 3_000
"""Lines that are noted of one call; a loop may go through more."""
HITS_MAX = 500
"""Failpoints that are noted of one call."""
MESSAGE_CHARACTERS_MAX = 300
LIVE = "live"


class TargetUnfit(Exception):
    """The target cannot be drilled as it is named; it was not run."""


def find_target(path: str) -> Callable[..., Any]:
    """The function that module:function names, imported here."""
    module_name, _, attribute = path.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # As `python -m` does.
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise TargetUnfit(
            f"there is no module {error.name!r}; run this in the folder of your code, or set PYTHONPATH"
        ) from None
    except LiveScope:
        raise
    except BaseException as error:  # SystemExit, too.
        raise TargetUnfit(f"importing {module_name} raised {described(error)}") from error
    holder: Any = None
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise TargetUnfit(f"{module_name} has no {attribute!r}")
        holder, found = found, getattr(found, name)
    if (
        isinstance(holder, type)
        and inspect.isfunction(found)
        and not isinstance(inspect.getattr_static(holder, attribute.rpartition(".")[2]), staticmethod)
    ):
        raise TargetUnfit(
            f"{attribute} is a method, and there is no object to call it on: name a function of your module that "
            "makes an object and calls the method"
        )
    if isinstance(found, type) or not callable(found):
        raise TargetUnfit(
            f"{attribute} is {'a class' if isinstance(found, type) else 'not a function'}; name a function"
        )
    return found  # type: ignore[no-any-return]


def look(task: dict[str, Any], _: Pistol) -> dict[str, Any]:
    """What the target is; or why it cannot be drilled. It is imported, and not run."""
    watch_scopes()
    try:
        target = find_target(task["target"])
        if inspect.isgeneratorfunction(inspect.unwrap(target)) or inspect.isasyncgenfunction(inspect.unwrap(target)):
            raise TargetUnfit("it is a generator function: calling it runs nothing")
        try:
            inspect.signature(target).bind(*task["args"], **task["kwargs"])
        except TypeError as error:
            signature = str(inspect.signature(target))
            raise TargetUnfit(
                f"it cannot be called with these arguments ({error}). Its signature is {signature[:200]}: pass --args "
                "as a JSON array, or as an object with names"
            ) from None
        except ValueError:
            pass  # Its parameters cannot be read; calling it will show.
    except (TargetUnfit, LiveScope) as error:
        return {"unfit": str(error)}
    bare = inspect.unwrap(target)
    code = getattr(bare, "__code__", None)
    return {
        "gated": find_published(target) is not None,
        "awaits": is_async(target),
        "file": code.co_filename if isinstance(code, CodeType) else "",
    }


def call(task: dict[str, Any], pistol: Pistol) -> dict[str, Any]:
    """Call the target once; how that ended, and which places it went through."""
    watch_scopes()
    target = find_target(task["target"])
    hits: list[str] = []
    pid, tracer = os.getpid(), Tracer(task, _file_of(target))
    if task.get("failpoint"):
        failpoints.arm(task["failpoint"], "kill", skip=task["skip"])
    elif task.get("notes"):
        for name in failpoints.CATALOGUE:
            if not name.startswith(LEFT_OUT):
                failpoints.arm(name, partial(hits.append, name))
    if task.get("together"):
        pistol.wait()
    ended: dict[str, Any] = {"raised": None, "code": None}
    tracer.begin()
    try:
        made = target(*task["args"], **task["kwargs"])
        if inspect.isawaitable(made):
            asyncio.run(_awaited(made))
    except BaseException as error:  # SystemExit and KeyboardInterrupt, too.
        ended = {"raised": described(error), "code": error.code if isinstance(error, OncewardError) else None,
                 "live": isinstance(error, LiveScope)}  # fmt: skip
    tracer.end()
    if os.getpid() != pid:
        os._exit(0)  # The target has forked, and this is not the process that was asked.
    return {**ended, "lines": tracer.lines, "hits": hits[:HITS_MAX]}


class Tracer:
    """Notes every line of one file just before it runs, or kills this process before the n-th of them."""

    def __init__(self, task: dict[str, Any], file: str) -> None:
        self.lines: list[int] = []
        self._file = file
        self._kill_at: int | None = task.get("kill_at")
        self._on = bool(file) and (self._kill_at is not None or bool(task.get("notes")))
        self._count = 0

    def begin(self) -> None:
        """Look, in this thread and in those that are started from now on."""
        if self._on:
            threading.settrace(self._entered)
            sys.settrace(self._entered)

    def end(self) -> None:
        """Look no longer."""
        sys.settrace(None)
        threading.settrace(None)

    def _entered(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename == self._file else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" or event == "return":
            line = frame.f_lineno if event == "line" else -frame.f_lineno
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            self._count += 1
            if len(self.lines) < EVENTS_MAX:
                self.lines.append(line)
        return self._line


class LiveScope(ConfigurationError):
    """The target has a gate of a live scope: it is not run."""


def watch_scopes() -> None:
    """Refuse, in this process, every gate of a live scope, before it can claim anything."""
    use = CallFactory._use_scope

    def checked(self: CallFactory, scope: str) -> None:
        if scope.partition(":")[0] == LIVE:
            raise LiveScope(
                "it has a gate with a live scope, where a drill would charge real cards: take the scope from your "
                "configuration, and drill it with test:..."
            )
        use(self, scope)

    setattr(CallFactory, "_use_scope", checked)  # noqa: B010 - on purpose, in this process only


def described(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, LiveScope):
        return str(error)
    return f"{type_name(type(error))}: {' '.join(message_of(error).split())}"[:MESSAGE_CHARACTERS_MAX]


def _file_of(target: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(target), "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


async def _awaited(made: Any) -> Any:
    return await made


WORKS: dict[str, Work] = {"target_look": look, "target_call": call}
