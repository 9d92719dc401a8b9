"""Generators are driven by the loops of `onceward.runtime.flow_driver`, and by nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import parsed

SRC = Path(__file__).resolve().parents[2] / "src" / "onceward"

MAY = {
    "runtime/flow_driver.py": "here they are",
    "stores/_postgres_timeout.py": "counts how often psycopg looks in vain, between the looks",
    "testing/explorer/actors.py": "chooses whose turn it is after each effect",
    "testing/explorer/actor_flows.py": "is asked for one effect at a time, by whoever chooses",
    "testing/explorer/both_ways.py": "goes two ways at once, one effect at a time, and compares them",
    "testing/store_suite/fixtures.py": "steps of a test begin together; a blocking store has answered by then",
}
"""Who else drives one, with the reason. A loop that only pauses can be `drive.rest_of` under any of the loops."""


def loops(source: str) -> Iterator[int]:
    """The lines of loops that send answers or throw errors into a generator."""
    if "send" not in source and "throw" not in source:
        return  # Most files: reading them would take seconds.
    for function in ast.walk(parsed(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        ends = any(
            isinstance(one, ast.ExceptHandler) and one.type is not None and "StopIteration" in ast.unparse(one.type)
            for one in ast.walk(function)
        )
        for loop in ast.walk(function):
            if isinstance(loop, ast.While | ast.For | ast.AsyncFor):
                called = {
                    one.func.attr
                    for one in ast.walk(loop)
                    if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
                }
                if "throw" in called or ("send" in called and ends):
                    yield loop.lineno


FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))


@pytest.mark.fault("a-generator-has-a-loop-of-its-own")
def test_no_generator_has_a_loop_of_its_own() -> None:
    """
    What is asked for by yielding is performed in one place, so that errors and interrupts are borne in one way.
    """
    found = {name: list(loops((SRC / name).read_text(encoding="utf-8"))) for name in FILES}

    assert {name: lines for name, lines in found.items() if lines and name not in MAY} == {}
    assert {name for name in ("runtime/flow_driver.py", "stores/_postgres_timeout.py") if not found[name]} == set()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f(g):\n    try:\n        a = next(g)\n        while True:\n            a = g.send(a)\n"
         "    except StopIteration as stop:\n        return stop.value\n", [4]),
        ("def f(g):\n    while True:\n        g.throw(KeyError())\n", [2]),
        ("async def f(g):\n    for _ in range(9):\n        try:\n            g.send(1)\n"
         "        except (StopIteration, KeyError):\n            return\n", [2]),
        ("def f(socket):\n    while data:\n        data = data[socket.send(data):]\n", []),
        ("def f(g):\n    return g.send(1)\n", []),
    ],
    ids=["a loop", "one that only throws", "an awaiting one", "a socket", "one answer"],
)  # fmt: skip
def test_the_check_itself(source: str, lines: list[int]) -> None:
    """
    A loop is seen in any shape; sockets, and whoever sends once, are left alone.
    """
    assert list(loops(source)) == lines
