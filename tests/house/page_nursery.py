"""
A warm process that runs scripts from the documentation: it has imported the package, and forks for each of them.

    python -W error page_nursery.py     one line in for each script: {"file", "folder", "environment", "output"}
                                        one line out: how it ended

Starting Python and importing everything takes most of a second, and a framework some seconds; there are hundreds of
scripts. What a script imports from elsewhere is imported here before, once: each script is forked into a process that
has it, and must name it all the same.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import onceward  # noqa: F401 - warm

PACKAGES = frozenset(
    {"anthropic", "fastapi", "flask", "httpx", "langchain", "langchain_core", "langgraph", "mcp", "openai", "psycopg"}
    | {"pydantic", "pydantic_ai", "redis", "requests", "sqlalchemy", "starlette"}
)
"""Of others, what takes long to import and has no state that a script sets up first (Django's settings)."""


def main() -> None:
    """Fork for every line."""
    for line in sys.stdin:
        order = json.loads(line)
        warm(Path(order["file"]).read_text(encoding="utf-8"))
        pid = os.fork()
        if pid == 0:
            run(order)
            return  # The child ends as any script does: threads are joined, what is registered runs.
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def warm(script: str) -> None:
    """Import what a script takes from others' packages; what goes wrong goes wrong in the script, where it is told."""
    with contextlib.suppress(SyntaxError):
        for node in ast.walk(ast.parse(script)):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for name in names:
                if name.partition(".")[0] in PACKAGES and name not in sys.modules:
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
    gc.freeze()


def run(order: dict[str, Any]) -> None:
    """Be that script."""
    gc.unfreeze()  # Packages that ask who refers to an object (Hypothesis does) are not to be told nobody.
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = io.StringIO()
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [order["file"]]
    sys.path[0] = order["folder"]
    try:
        runpy.run_path(order["file"], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
