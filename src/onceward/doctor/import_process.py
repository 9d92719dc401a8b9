"""
The other process of `module_import.py`: imports modules, and writes one line of JSON about what they declare.

    python -P -m onceward.doctor.import_process shop.payments

The report goes out by a descriptor of its own. What the modules print goes nowhere, and they get no input.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from onceward.gate import AsyncGate, Gate, OperationContract

OPERATIONS_MAX: Final = 2_000
MESSAGE_CHARACTERS_MAX: Final = 300


def _main(modules: list[str]) -> None:
    own = os.getpid()
    report = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = _collect(modules)
    except BaseException as error:
        found = {"error": _explain(error, modules)}
    if os.getpid() == own:  # A module may have forked; only one of us reports.
        with os.fdopen(report, "wb") as line:
            line.write(json.dumps(found).encode() + b"\n")
    os._exit(0)  # Not by way of threads and exit handlers of the modules: nobody waits for them.


def _collect(modules: list[str]) -> dict[str, Any]:
    operations: list[dict[str, Any]] = []
    for name in modules:
        module = importlib.import_module(name)
        scope = _only_scope(module)
        operations += [{"module": name, "scope": scope, **one._asdict()} for one in _contracts(module)]
    return {"operations": operations[:OPERATIONS_MAX]}


def _contracts(module: ModuleType) -> list[OperationContract]:
    """Of the functions of a module and of its classes, in their order, each once."""
    found: dict[int, OperationContract] = {}
    owners = [
        module,
        *(one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__),
    ]
    for owner in owners:
        for value in list(vars(owner).values()):
            try:
                contract = inspect.getattr_static(value, "contract", None)
            except Exception:  # noqa: S112 - an object of theirs that cannot be asked declares nothing
                continue
            if isinstance(contract, OperationContract):
                found[id(value)] = contract
    return list(found.values())


def _only_scope(module: ModuleType) -> str | None:
    """The scope, if all gates of a module have the same."""
    scopes = {one.scope for one in vars(module).values() if isinstance(one, Gate | AsyncGate)}
    return scopes.pop() if len(scopes) == 1 else None


def _explain(error: BaseException, modules: list[str]) -> str:
    named = ", ".join(modules)
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        if any(one == error.name or one.startswith(f"{error.name}.") for one in modules):
            return f"there is no module {error.name!r} here. Check the name, or run this in the folder that contains it"
        return f"importing {named} needs the module {error.name!r}, which is missing. Install it"
    if isinstance(error, SystemExit):
        return (
            f"importing {named} ends the process (exit code {error.code}). "
            'Put what runs under `if __name__ == "__main__":`'
        )
    said = f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX]
    return f"importing {named} raised {said}. Check that `python -c 'import {modules[0]}'` works"


if __name__ == "__main__":
    _main(sys.argv[1:])
