"""
`@handler`: marks a function that processes events, with the options that it runs under.

    @handler(guarantee="keyed")
    def paid(event: WebhookEvent, operation: Operation) -> None: ...

A source made by `onceward hooks add` names its handler as text. Only functions with this mark are run from there: a row
of a database must not be able to run whatever can be imported.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, Unpack

from onceward._core.errors import ConfigurationError
from onceward._core.operation import Operation
from onceward._core.terms import DEFAULT_TERMS, Options, apply_options
from onceward.gate.call_factory import check_runnable
from onceward.gate.function_inspection import OPERATION, marks_effect
from onceward.messaging.inbox.handler_marks import is_marked

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__onceward_handler__"
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


class WebhookEvent(NamedTuple):
    """An event as its handler sees it: the first delivery of it, byte for byte."""

    source: str
    id: str
    body: bytes
    headers: Mapping[str, str]
    """Those that say what it is (names in lower case); no signature, no credentials."""
    received_at: datetime
    signed_at: datetime | None
    number: int | None
    """Where the source numbers its events."""
    attempt: int
    """1 for the first."""

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class HandlerSpec(NamedTuple):
    """A handler, and how it is run."""

    fn: Callable[..., Any]
    options: Mapping[str, Any]
    takes_operation: bool
    marked: bool

    @property
    def guarantee(self) -> str:
        """What kind of effect it declares."""
        return str(self.options.get("guarantee", DEFAULT_TERMS.guarantee))

    def call(self, event: WebhookEvent, operation: Operation) -> None:
        """Run it. What it returns is ignored."""
        if self.takes_operation:
            self.fn(event, operation=operation)
        else:
            self.fn(event)


def handler(**options: Unpack[Options]) -> Callable[[F], F]:
    """
    Mark a function that processes events, with the kind of effect that it has: `guarantee`, `settle`, ...

    It takes the event and, if it has a parameter of that name, the `operation`. The function itself is not changed.
    """
    _check(options)

    def mark(fn: F) -> F:
        setattr(fn, MARK, dict(options))
        inspect_handler(fn)
        return fn

    return mark


def inspect_handler(fn: Callable[..., Any]) -> HandlerSpec:
    """A function as a handler; `ConfigurationError` if it cannot be one."""
    if not callable(fn):
        raise ConfigurationError(f"a handler must be a function that takes an event, not a {type(fn).__name__}")
    check_runnable(fn, awaits=False)
    options = getattr(fn, MARK, {})
    _check(options)
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        raise ConfigurationError("this handler's parameters cannot be read: wrap it in a function") from None
    takes = OPERATION in parameters
    if options.get("settle") == "inside" and not takes:
        raise ConfigurationError(
            "a handler with settle='inside' needs a second parameter: def paid(event, operation). It calls "
            "operation.settle_inside(connection, None) in its transaction"
        )
    return HandlerSpec(fn, options, takes, takes and marks_effect(fn))


def check_handler_path(path: str) -> str:
    """Return the path of a handler if it is written as package.module:function."""
    if not _PATH.fullmatch(path):
        raise ConfigurationError(f"a handler is named package.module:function, such as shop.hooks:paid, not {path!r}")
    return path


def import_handler(path: str) -> HandlerSpec:
    """
    The handler that a text names; `ConfigurationError` says why there is none.

    Importing runs a module, and a row must not choose which: its source is read first, and must have the mark. A module
    that is here already is not run again.
    """
    module_name, _, name = check_handler_path(path).partition(":")
    try:
        if module_name not in sys.modules and not is_marked(module_name, name):
            raise _unmarked(path)
        found = getattr(_imported(path, module_name), name, None)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the handler {path} cannot be imported: there is no module {error.name!r}. Start the service with "
            "--hooks-path FOLDER, or set PYTHONPATH"
        ) from None
    if found is None:
        raise ConfigurationError(f"the module of the handler {path} has nothing of that name")
    if not isinstance(getattr(found, MARK, None), dict):
        raise _unmarked(path)
    return inspect_handler(found)


def _imported(path: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"importing the handler {path} raised {type(error).__name__}") from error


def _unmarked(path: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not marked as a handler: put @handler(...) of onceward.messaging.inbox above it. Only marked "
        "functions are run, and a module is imported only if its source has the mark"
    )


def _check(options: Mapping[str, Any]) -> None:
    terms = apply_options(DEFAULT_TERMS, options)
    if terms.guarantee == "atomic" and terms.settle != "inside":
        raise ConfigurationError(
            "an atomic handler must settle in its own transaction: use guarantee='atomic', settle='inside', and "
            "operation.settle_inside(connection) before it commits"
        )
    if "in_flight" in options or "wait" in options:
        raise ConfigurationError("leave in_flight and wait out: nobody waits for a handler")
