"""
A warm process that runs scripts from the documentation: it has imported the package, and forks for each of them.

    python -W error page_nursery.py     one line in for each script: {"file", "folder", "environment", "output"}
                                        or for a command of ours: {"typed": ["key", "lint"], "folder", ...}
                                        one line out: how it ended

Starting Python and importing everything takes most of a second, and a framework some seconds; there are hundreds of
scripts. What a script imports from elsewhere is imported here before, once: each script is forked into a process that
has it, and must name it all the same.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, NoReturn

import onceward  # noqa: F401 - warm

PACKAGES = frozenset(
    {"anthropic", "fastapi", "flask", "httpx", "langchain", "langchain_core", "langgraph", "mcp", "openai", "psycopg"}
    | {"onceward", "pydantic", "pydantic_ai", "redis", "requests", "sqlalchemy", "starlette"}
)
"""Ours, and of others what takes long to import and has no state that a script sets up first (Django's settings)."""


def main() -> None:
    """Fork for every line."""
    for line in sys.stdin:
        order = json.loads(line)
        if "typed" in order:
            warm_command(order["typed"])
        else:
            warm(Path(order["file"]).read_text(encoding="utf-8"))
        pid = os.fork()
        if pid == 0:
            end(run(order))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def warm(script: str) -> None:
    """Import what a script takes from others' packages; what goes wrong goes wrong in the script, where it is told."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse(script)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in names:
                if name.partition(".")[0] in PACKAGES:
                    with contextlib.suppress(Exception):
                        module = importlib.import_module(name)
                        if isinstance(node, ast.ImportFrom):  # Many names of ours are imported when they are used.
                            for one in node.names:
                                getattr(module, one.name, None)
    gc.freeze()


def warm_command(typed: list[str]) -> None:
    """Import the modules of a command's group."""
    from onceward.cli import build_parser
    from onceward.cli.command_table import GROUPS

    build_parser([word for word in typed if word in GROUPS][:1])
    gc.freeze()


def run(order: dict[str, Any]) -> int:
    """Be that script, or that command; its exit code."""
    if "typed" not in order and "hypothesis" in Path(order["file"]).read_text(encoding="utf-8"):
        gc.unfreeze()  # It asks who refers to an object, and is not to be told nobody.
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = io.StringIO()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[0] = order["folder"]
    try:
        if "typed" in order:
            return run_command(order["typed"])
        sys.argv = [order["file"]]
        runpy.run_path(order["file"], run_name="__main__")
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_command(typed: list[str]) -> int:
    """As the installed script does. Who types a command has Python's usual filters of warnings."""
    from onceward.cli import main as typed_command

    warnings.resetwarnings()
    for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", ignored)
    sys.argv = ["onceward", *typed]
    return typed_command()


def end(code: int) -> NoReturn:
    """
    End as any script does: threads are joined, what is registered runs, what is printed is written.

    What is left out is to take apart every module of every framework, one by one, which takes longer than most scripts.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
