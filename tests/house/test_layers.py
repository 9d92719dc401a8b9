"""
Who may import whom, and who may touch the clock, chance and other dangerous things.

The source is parsed, not run. Each check is a function from a module's text to the offences in it, so that it can be
shown to catch a planted one.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from source_trees import parsed

from onceward.runtime.environment import REAL
from onceward.service.access.issued_token import issue_token

SRC = Path(__file__).resolve().parents[2] / "src"
PACKAGE = "onceward"
FILES = sorted(path.relative_to(SRC).as_posix() for path in (SRC / PACKAGE).rglob("*.py"))


class Layer(NamedTuple):
    """A layer and where it lives: a path ending in `/` is a folder, others are files or beginnings of file names."""

    name: str
    places: tuple[str, ...]


# From the bottom up: a module may import from its own layer and from those above it in this table.
# A new module belongs into exactly one line; put it as high in the table as what it imports allows.
LAYERS = (
    Layer("core", ("_core/",)),
    Layer("protocol", ("protocol/",)),
    Layer("runtime", ("runtime/",)),
    Layer("stores", ("stores/",)),
    Layer("observe", ("observe/",)),
    Layer("audit", ("audit/",)),
    Layer("adapters", ("adapters/",)),
    Layer(
        "messages",
        (
            "messaging/__init__.py",
            "messaging/outbox/__init__.py",
            "messaging/outbox/message.py",
            "messaging/outbox/message_writer.py",
            "messaging/outbox/outbox.py",
            "messaging/outbox/outbox_async.py",
            "messaging/outbox/tables.py",
        ),
    ),
    Layer("gate", ("gate/",)),
    Layer("retry", ("retry/",)),
    Layer("emitter", ("messaging/emitter/",)),
    Layer("http", ("http/",)),
    Layer("webhooks", ("messaging/webhooks/",)),
    Layer("outbox", ("messaging/outbox/",)),
    Layer("inbox", ("messaging/inbox/",)),
    Layer("journal", ("journal/",)),
    Layer("agents", ("agents/",)),
    Layer("queues", ("queues/",)),
    Layer("root", ("__init__.py", "errors.py", "keys.py", "verdicts.py")),
    Layer("testing", ("testing/",)),
    Layer("drill", ("drill/",)),
    Layer("overview", ("overview/",)),
    Layer("dashboard", ("dashboard/",)),
    Layer("service", ("service/",)),
    Layer("client", ("client/",)),
    Layer("migrate", ("migrate/",)),
    Layer("lint", ("lint/",)),
    Layer("doctor", ("doctor/",)),
    Layer("cli", ("cli/", "__main__.py")),
)

# What the core may use of the standard library: things that compute. Nothing here acts, waits, chooses or tells time.
CORE_MAY_IMPORT = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "dis",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "inspect",
        "itertools",
        "json",
        "keyword",
        "math",
        "numbers",
        "operator",
        "re",
        "string",
        "struct",
        "sys.stdlib_module_names",
        "sys.version_info",
        "textwrap",
        "types",
        "typing",
        "unicodedata",
        "urllib.parse",
        "uuid.UUID",
        "warnings",
        "weakref",
        "zlib",
    }
)

# Speed-ups and users' libraries that the core may use if they are there: only inside `try ... except ImportError`.
CORE_MAY_TRY = frozenset({"orjson", "_sha2", "_sha256"})

# Single exceptions: a core file, what it may import besides, and why, in a comment.
# result_restorer.py: only when an annotation already is a msgspec.Struct, so msgspec is imported by the user.
CORE_EXCEPTIONS: dict[str, frozenset[str]] = {"onceward/_core/result_restorer.py": frozenset({"msgspec"})}

# Single exceptions to the order of layers: a file, what it may import from further down the table, and why.
# The root offers `Client` and `AsyncClient`, which stand on it. It imports them when somebody asks for one of these
# names, and for type checkers: `test_importing_the_package_imports_no_backend` holds that it does not by itself.
LAYER_EXCEPTIONS: dict[str, frozenset[str]] = {"onceward/__init__.py": frozenset({"onceward.client"})}

# The one door for time and chance, and what has to come through it. A trailing dot means everything below.
THE_DOOR = "onceward/runtime/environment.py"
# Who sets the clocks of its own process wrong, to show what a store makes of that.
CLOCK_SETTERS = frozenset({"onceward/testing/skewed.py"})
TIME_AND_CHANCE = (
    "time.",
    "random.",
    "secrets.",
    "os.urandom",
    "os.getrandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid6",
    "uuid.uuid7",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "asyncio.sleep",
)

# A stored result is data: nothing that can run code on reading is ever used.
DANGEROUS_MODULES = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle"})
DANGEROUS_CALLS = frozenset({"eval", "exec"})


class Import(NamedTuple):
    """One imported thing: its full name, the name it got, what that stands for, and whether its absence is handled."""

    target: str
    alias: str
    meaning: str
    line: int
    guarded: bool


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(source: str, file: str) -> Iterator[Import]:
    """Everything a module imports, wherever in it and under whichever condition."""
    tree = parsed(source)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and any("ImportError" in ast.unparse(h.type) for h in node.handlers if h.type)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = module_name(file).split(".")
    package = package if file.endswith("/__init__.py") else package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                top = name.name.split(".")[0]  # `import a.b` binds `a`; everything else binds what it names.
                alias, meaning = (name.asname, name.name) if name.asname else (top, top)
                yield Import(name.name, alias, meaning, node.lineno, id(node) in guarded)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for name in node.names:
                target = f"{base}.{name.name}"
                yield Import(target, name.asname or name.name, target, node.lineno, id(node) in guarded)


def is_ours(target: str) -> bool:
    return target == PACKAGE or target.startswith(f"{PACKAGE}.")


def is_within(target: str, names: frozenset[str]) -> bool:
    """Whether a dotted name is one of these or lies below one."""
    parts = target.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def layer_of(file: str) -> int | None:
    """The number of a file's layer."""
    inside = file.removeprefix(f"{PACKAGE}/")
    for number, layer in enumerate(LAYERS):
        for place in layer.places:
            if inside == place or (not place.endswith(".py") and inside.startswith(place)):
                return number
    return None


def file_of(target: str, files: list[str]) -> str | None:
    """The file of ours that an imported name comes from: the name's own module, or the one that holds it."""
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if file in files:
                return file
    return None


def impure_imports(source: str, file: str) -> list[str]:
    """What a core module imports although it must not."""
    return [
        f"{file}:{found.line}: {found.target}"
        for found in imports(source, file)
        if not (
            is_within(found.target, CORE_MAY_IMPORT)
            or is_within(found.target, frozenset({f"{PACKAGE}._core"}))
            or (found.guarded and is_within(found.target, CORE_MAY_TRY))
            or is_within(found.target, CORE_EXCEPTIONS.get(file, frozenset()))
        )
    ]


def downward_imports(source: str, file: str, files: list[str]) -> list[str]:
    """What a module imports of ours from a layer further down the table."""
    offences = []
    for found in imports(source, file):
        if not is_ours(found.target) or is_within(found.target, LAYER_EXCEPTIONS.get(file, frozenset())):
            continue
        origin = file_of(found.target, files)
        here, there = layer_of(file), layer_of(origin) if origin else None
        if origin is None or here is None or there is None:
            offences.append(f"{file}:{found.line}: {found.target} is in no layer")
        elif there > here:
            offences.append(f"{file}:{found.line}: {LAYERS[here].name} imports {found.target} of {LAYERS[there].name}")
    return offences


def dotted_uses(source: str, file: str) -> Iterator[tuple[int, str]]:
    """Every import, and every use of an attribute of one, by its full dotted name, whatever it was imported as."""
    tree = parsed(source)
    known = {}
    for found in imports(source, file):
        known[found.alias] = found.meaning
        yield found.line, found.target
    for node in ast.walk(tree):
        parts: list[str] = []
        top: ast.AST = node
        while isinstance(top, ast.Attribute):
            parts.insert(0, top.attr)
            top = top.value
        if parts and isinstance(top, ast.Name) and top.id in known:
            yield node.lineno, ".".join([known[top.id], *parts])  # type: ignore[attr-defined]


def uses_of_time_and_chance(source: str, file: str) -> list[str]:
    """Where a module reads a clock, sleeps or rolls dice by itself."""
    return sorted(
        {
            f"{file}:{line}: {name}"
            for line, name in dotted_uses(source, file)
            if any(f"{name}.".startswith(one if one.endswith(".") else f"{one}.") for one in TIME_AND_CHANCE)
        }
    )


def dangerous_things(source: str, file: str) -> list[str]:
    """Where a module could run what it reads."""
    offences = [
        f"{file}:{found.line}: {found.target}"
        for found in imports(source, file)
        if is_within(found.target, DANGEROUS_MODULES)
    ]
    offences += [
        f"{file}:{node.lineno}: {node.id}"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Name) and node.id in DANGEROUS_CALLS
    ]
    return offences


def assertions(source: str, file: str) -> list[str]:
    """Where a module relies on a check that `python -O` removes."""
    return [f"{file}:{node.lineno}" for node in ast.walk(parsed(source)) if isinstance(node, ast.Assert)]


def text(file: str) -> str:
    return (SRC / file).read_text(encoding="utf-8")


def offences(check: Callable[[str, str], list[str]], files: list[str]) -> list[str]:
    """What a check finds in files. One test for all of them: thousands of small ones take a minute."""
    return [found for file in files for found in check(text(file), file)]


def test_every_module_belongs_to_a_layer() -> None:
    """
    No module stands outside the order of layers. If this fails: add the file to LAYERS, at the top of this file.
    """
    assert [file for file in FILES if layer_of(file) is None] == []


def test_the_core_imports_nothing_that_acts() -> None:
    """
    The core decides; only the shells act. So it imports nothing that blocks, waits, rolls dice or tells time.
    """
    core = [file for file in FILES if file.startswith("onceward/_core/")]

    assert offences(impure_imports, core) == []


def test_imports_point_one_way() -> None:
    """
    A module imports only from its own layer and from those it stands on.
    """
    assert offences(lambda source, file: downward_imports(source, file, FILES), FILES) == []


def test_time_and_chance_have_one_door() -> None:
    """
    Clocks, sleeps and random numbers come from the environment object, so that a test can replace them all.
    """
    assert (
        offences(uses_of_time_and_chance, [file for file in FILES if file != THE_DOOR and file not in CLOCK_SETTERS])
        == []
    )


APPS = sorted(path.parent.name for path in (SRC / PACKAGE / "service").glob("*/app.py"))


@pytest.mark.parametrize("app", APPS)
def test_apps_of_the_service_do_not_know_each_other(app: str) -> None:
    """
    Each can be mounted alone, in anybody's application; only `service/app.py` puts them together.
    """
    others = frozenset(f"{PACKAGE}.service.{other}" for other in (*APPS, "serving") if other != app)
    files = [file for file in FILES if file.startswith(f"{PACKAGE}/service/{app}/")]

    assert [
        found.target for file in files for found in imports(text(file), file) if is_within(found.target, others)
    ] == []
    assert len(APPS) > 1


def test_nothing_runs_what_it_reads() -> None:
    """
    No pickle or its like, no eval, no exec: stored results are data.
    """
    assert offences(dangerous_things, FILES) == []


def test_no_safety_rests_on_assert() -> None:
    """
    Checks raise; an `assert` vanishes under `python -O`.
    """
    assert offences(assertions, [file for file in FILES if not file.startswith("onceward/testing/")]) == []


def test_importing_the_package_imports_no_backend() -> None:
    """
    `import onceward` needs no database driver, not even the standard library's: opening a store imports its own.
    """
    backends = ["sqlite3", "psycopg", "redis", "sqlalchemy", "django", "httpx", "httpx2", "pydantic", "msgspec"]
    backends += ["onceward.client", "onceward.service"]
    script = f"import sys, onceward; print([name for name in {backends} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_protocol_imports_the_standard_library_and_the_core_only() -> None:
    """
    Service and client share it, so it needs nothing that only one of them has installed.
    """
    protocol = [file for file in FILES if file.startswith("onceward/protocol/")]
    allowed = frozenset({"onceward._core", "onceward.protocol"})

    assert len(protocol) > 1
    assert [
        found.target
        for file in protocol
        for found in imports(text(file), file)
        if found.target.partition(".")[0] not in sys.stdlib_module_names and not is_within(found.target, allowed)
    ] == []


@pytest.mark.parametrize("then", ["", "; onceward.client.Client('https://sql.example.com', token=token)"])
def test_importing_the_client_loads_nothing_of_the_server(then: str) -> None:
    """
    What both know is in `protocol`. The engine's code is imported when a local file is opened, and not before.
    """
    token = issue_token("test", REAL.random).text
    script = (
        f"import sys, onceward.client; token = {token!r}{then}\n"
        "print([name for name in sys.modules if name.startswith(('onceward.service', 'msgspec', 'sqlite3'))])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (done.stdout, done.stderr) == ("[]\n", "")


class TestTheChecksThemselves:
    """Each check finds an offence planted for it, and nothing in innocent code."""

    @pytest.mark.parametrize(
        "offence",
        [
            "import asyncio",
            "import time",
            "from os import path",
            "import uuid",
            "from uuid import uuid4",
            "import orjson",
            "import logging",
            "import urllib.request",
            "from onceward.runtime import failpoints",
            "from .. import failpoints",
            "from ..stores import memory",
            "def late():\n    import sqlite3",
            "if True:\n    import threading",
            "try:\n    import orjson\nexcept ValueError:\n    pass",
        ],
    )
    def test_an_impure_import_is_found(self, offence: str) -> None:
        """
        An import that acts, that is not ours to use, or that hides in a function, is found.
        """
        assert len(impure_imports(offence, "onceward/_core/planted.py")) == 1

    @pytest.mark.parametrize(
        "innocent",
        [
            "from __future__ import annotations",
            "from uuid import UUID",
            "from collections.abc import Callable",
            "import collections.abc",
            "from urllib.parse import urlsplit",
            "from . import errors",
            "from .errors import InDoubt",
            "from onceward._core import errors",
            "try:\n    import orjson\nexcept ImportError:\n    orjson = None",
        ],
    )
    def test_a_pure_import_is_left_alone(self, innocent: str) -> None:
        """
        What computes, what is the core's own, and a guarded speed-up pass.
        """
        assert impure_imports(innocent, "onceward/_core/planted.py") == []

    def test_an_import_against_the_order_is_found(self) -> None:
        """
        A store that imports the gate is found, whichever way it spells it; the gate may import a store.
        """
        store, gate = "onceward/stores/planted.py", "onceward/gate/__init__.py"
        files = [store, gate, "onceward/__init__.py", "onceward/stores/__init__.py", "onceward/runtime/environment.py"]
        spellings = ["import onceward.gate", "from onceward.gate import Gate", "from ..gate import Gate"]
        spellings += ["from onceward import gate", "from onceward import Gate", "from onceward.unheard import of"]

        assert [len(downward_imports(spelling, store, files)) for spelling in spellings] == [1] * 6
        assert downward_imports("from onceward.stores import planted", gate, files) == []
        assert downward_imports("from onceward.runtime import environment", store, files) == []

    def test_the_exception_for_the_client_is_the_roots_and_for_nothing_else(self) -> None:
        """
        The root may name the client, nobody below may, and the root may name nothing else of what stands on it.
        """
        root, gate = "onceward/__init__.py", "onceward/gate/__init__.py"
        files = [root, gate, "onceward/client/__init__.py", "onceward/service/__init__.py"]

        assert downward_imports("from onceward import client", root, files) == []
        assert downward_imports("from onceward.client import Client", root, files) == []
        assert len(downward_imports("from onceward.client import Client", gate, files)) == 1
        assert len(downward_imports("from onceward import service", root, files)) == 1

    def test_a_module_in_no_layer_is_found(self) -> None:
        """
        A file that the table does not name has no layer; a folder's line covers what lies in it.
        """
        assert [
            layer_of(f"onceward/{file}") for file in ("utils.py", "runtime.py", "_core/new.py", "stores/deep/new.py")
        ] == [None, None, 0, 3]

    @pytest.mark.parametrize(
        "offence",
        [
            "import time\ntime.sleep(1)",
            "import time as t\nt.monotonic()",
            "from time import sleep",
            "from time import time as now\nnow()",
            "import random",
            "from random import Random",
            "import secrets",
            "import os\nos.urandom(8)",
            "from os import urandom",
            "import uuid\nuuid.uuid4()",
            "from uuid import uuid4 as fresh",
            "import datetime\ndatetime.datetime.now()",
            "import datetime as d\nd.date.today()",
            "from datetime import datetime\nclass C:\n    at = datetime.now",
            "from datetime import datetime as dt\ndt.utcnow()",
            "import asyncio\nasync def f():\n    await asyncio.sleep(1)",
            "def f():\n    from asyncio import sleep",
        ],
    )
    def test_a_use_of_time_or_chance_is_found(self, offence: str) -> None:
        """
        Under any alias, anywhere in a module, called or handed on.
        """
        assert uses_of_time_and_chance(offence, "onceward/planted.py") != []

    @pytest.mark.parametrize(
        "innocent",
        [
            "from datetime import time, datetime, UTC\ntime(12)\ndatetime.fromtimestamp(0, UTC)",
            "import os\nos.getpid()",
            "from uuid import UUID\nUUID(int=1)",
            "import threading\nthreading.Event().wait(1)",
            "import asyncio\nasyncio.get_running_loop()",
            "def f(environment):\n    environment.sleep(1)\n    return environment.random(8)",
        ],
    )
    def test_what_only_sounds_like_time_or_chance_is_left_alone(self, innocent: str) -> None:
        """
        Values, waits on events, and the environment's own methods pass.
        """
        assert uses_of_time_and_chance(innocent, "onceward/planted.py") == []

    @pytest.mark.parametrize(
        "offence",
        ["import pickle", "from marshal import loads", "import shelve as s", "eval('1')", "f = exec"],
    )
    def test_a_dangerous_thing_is_found(self, offence: str) -> None:
        """
        Importing or naming something that runs what it reads is enough.
        """
        assert len(dangerous_things(offence, "onceward/planted.py")) == 1

    def test_an_assertion_is_found(self) -> None:
        """
        Also inside a function; the word in a comment or a string is not one.
        """
        assert assertions("def f(x):\n    assert x\n# assert\n'assert'", "planted.py") == ["planted.py:2"]
