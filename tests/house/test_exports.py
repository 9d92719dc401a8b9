"""What the package offers is listed, sorted, described, and drawn as it is."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from source_trees import parsed

import onceward
import onceward.errors
import onceward.gate
import onceward.keys
import onceward.retry
import onceward.verdicts
from onceward._core import errors

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
MODULES = sorted(path.relative_to(SRC).as_posix() for path in (SRC / "onceward").rglob("*.py"))
ERRORS_PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
PARTS = ("Cause", "What to do", "Whose fault", "Retry")
FRONT = (onceward.errors, onceward.keys, onceward.verdicts)
"""What stands beside the root and offers what was defined further in."""


def public_names(module: Any) -> set[str]:
    """What a reader of `dir(module)` would take for public: no underscore, no submodule, no `annotations`."""
    return {
        name
        for name in dir(module)
        if not name.startswith("_") and name != "annotations" and not isinstance(getattr(module, name), ModuleType)
    }


def in_order(names: list[str]) -> list[str]:
    """CONSTANTS, then Classes, then functions, each by the alphabet: the order that ruff keeps."""
    return sorted(names, key=lambda name: (2 if not name[0].isupper() else int(not name.isupper()), name))


def undescribed(name: str, thing: Any) -> list[str]:
    """The public things without a docstring: this one, or a method or property that it defines itself."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return []  # A constant or an alias; its description stands beside it.
    bare = [] if has_own_words(name, thing) else [name]
    if inspect.isclass(thing):
        for attribute, value in vars(thing).items():
            if attribute.startswith("_") or (issubclass(thing, Enum) and isinstance(value, thing)):
                continue
            value = getattr(value, "__func__", value)  # A class method or static method.
            is_method = inspect.isfunction(value) or isinstance(value, property)
            if is_method and not value.__doc__ and not inherits_words(thing, attribute):
                bare.append(f"{name}.{attribute}")
    return bare


def has_own_words(name: str, thing: Any) -> bool:
    """Whether there is a docstring that a person wrote: data classes and enums are given one otherwise."""
    words = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return bool(words) and not words.startswith(f"{name.rpartition('.')[2]}(")


def inherits_words(thing: type, attribute: str) -> bool:
    """Whether the method is described where it was first declared."""
    return any(getattr(vars(base).get(attribute), "__doc__", None) for base in thing.__mro__[1:])


def drawn_tree(docstring: str) -> dict[str, str | None]:
    """Class -> parent, as the drawing in a module's docstring has it."""
    tree: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        root = re.fullmatch(r" {4}(\w+)", line)
        branch = re.match(r"[ |]*(\+-- )(\w+)", line)
        if root:
            tree[root[1]] = None
            path = [(0, root[1])]
        elif branch:
            depth = branch.start(1) + 1
            path = [(above, name) for above, name in path if above < depth]
            tree[branch[2]] = path[-1][1]
            path.append((depth, branch[2]))
    return tree


def real_tree(module: ModuleType) -> dict[str, str | None]:
    """Class -> parent, as the module's exceptions have it; none for the root."""
    # Our own call themselves `onceward.NAME`.
    homes = (module.__name__, "onceward") if module is errors else (module.__name__,)
    classes = [thing for thing in vars(module).values() if is_error(thing) and thing.__module__ in homes]
    return {
        error.__name__: None
        if error.__bases__ == (Exception,)
        else ", ".join(base.__name__ for base in error.__bases__ if base is not RuntimeError)
        for error in classes
    }


def is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def sections(page: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Class -> (code, part -> its text), from the page's headings and their bold-worded items."""
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        match = re.fullmatch(r"(\w+) \(`(\w+)`\)", heading)
        name, code = match.groups() if match else (heading, "")
        parts = re.findall(r"^- \*\*([\w ]+):\*\* (.+(?:\n(?!- ).+)*)", body, re.MULTILINE)
        found[name] = (code, dict(parts))
    return found


ERRORS = [getattr(errors, name) for name in real_tree(errors)]

MAY, MUST_NOT = "A loop may repeat", "A loop must not repeat"


def test_the_list_of_exports_is_sorted_and_true() -> None:
    """
    `__all__` of the root names what can be imported from it, in order; and of the modules beside it, all there is.
    """
    assert in_order(list(onceward.__all__)) == list(onceward.__all__)
    assert [name for name in onceward.__all__ if not hasattr(onceward, name)] == []
    for module in FRONT:
        assert in_order(list(module.__all__)) == list(module.__all__)
        assert public_names(module) == set(module.__all__), module.__name__


def test_the_front_door_is_small() -> None:
    """
    About forty names: what the tutorial, the agents' and the HTTP pages use. The rest is in its package.
    """
    assert len(onceward.__all__) <= 45


def public_classes() -> dict[str, set[str]]:
    """Class -> the modules that define one of this name; those of a made half are its awaiting text's."""
    found: dict[str, set[str]] = {}
    for file in MODULES:
        for node in parsed((SRC / file).read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(file)
    return found


SAME_NAME = {"IdempotencyMiddleware", "Transport", "AsyncTransport"}
"""One for each framework or library: a program imports one of them."""


@pytest.mark.fault("two-classes-of-one-name")
def test_no_two_public_classes_have_one_name() -> None:
    """
    Whoever reads a name in a traceback, a log or a page knows what it is.
    """
    several = {name: sorted(files) for name, files in public_classes().items() if len(files) > 1}

    assert {name: files for name, files in several.items() if name not in SAME_NAME} == {}
    assert SAME_NAME - several.keys() == set()


@pytest.mark.fault("the-root-imports-everything")
def test_importing_the_root_imports_nothing_else_of_ours() -> None:
    """
    What a name needs is imported when the name is first used.
    """
    script = """
import sys, onceward
assert [name for name in sys.modules if name.startswith("onceward.")] == []
assert "sqlite3" not in sys.modules and "asyncio" not in sys.modules
onceward.Gate
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_package_says_what_it_may_import_and_where_to_start() -> None:
    """
    A reader of `src/onceward` sees the product in one look.
    """
    packages = [file for file in MODULES if file.count("/") == 2 and file.endswith("/__init__.py")]
    words = {file: ast.get_docstring(parsed((SRC / file).read_text(encoding="utf-8"))) or "" for file in packages}

    assert [file for file, said in words.items() if not re.search(r"\bmay import|\bimports\b", said, re.I)] == []
    assert [file for file, said in words.items() if not re.search(r"\b(start|begin|read)\b", said, re.I)] == []


@pytest.mark.fault("an-error-says-the-wrong-thing-to-loops")
@pytest.mark.parametrize(
    "error", [one for one in ERRORS if one is not errors.OncewardError], ids=lambda one: one.__name__
)
def test_every_error_says_whether_a_loop_may_repeat_it(error: type[errors.OncewardError]) -> None:
    """
    In its own docstring, in words that agree with its advice.
    """
    words = " ".join((vars(error).get("__doc__") or "").split())
    repeats = error.retry is errors.RetryAdvice.SAME_KEY

    assert (repeats, not repeats) == (MAY in words, MUST_NOT in words)


def test_everything_public_is_described() -> None:
    """
    Classes, their public methods and functions have docstrings in the user's words.
    """
    offered = {name: getattr(module, name) for module in (onceward, *FRONT) for name in module.__all__}

    assert [bare for name, thing in offered.items() for bare in undescribed(name, thing)] == []


def test_every_module_says_what_it_is() -> None:
    """
    Each module begins with what it is and what it promises.
    """
    assert [file for file in MODULES if not ast.get_docstring(parsed((SRC / file).read_text(encoding="utf-8")))] == []


def test_the_drawing_of_the_errors_is_true() -> None:
    """
    Every error class is in the drawing, under its own parent, and nothing else is.
    """
    assert real_tree(errors) == drawn_tree(errors.__doc__ or "")


def test_every_error_has_a_code_of_its_own() -> None:
    """
    A program can tell any two errors apart by their codes.
    """
    codes = [error.code for error in ERRORS]

    assert sorted(set(codes)) == sorted(codes)


def test_every_error_can_be_imported_from_its_module() -> None:
    """
    Whoever catches an error imports it from `onceward.errors`; a dozen are at the root as well.
    """
    assert [error.__name__ for error in ERRORS if getattr(onceward.errors, error.__name__, None) is not error] == []
    assert [error.__name__ for error in ERRORS if error.__name__ not in onceward.errors.__all__] == []
    assert [error for error in ERRORS if pickle.loads(pickle.dumps(error)) is not error] == []
    assert {error.__module__ for error in ERRORS} == {"onceward"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_described_as_it_is(error: type[errors.OncewardError]) -> None:
    """
    The errors page has a section on each error, with its true code, fault and advice, and what to do next.
    """
    code, parts = sections(ERRORS_PAGE).get(error.__name__, ("", {}))

    assert error.code == code
    assert tuple(parts) == PARTS
    assert parts["Whose fault"].startswith(f"`{error.fault}`")
    assert parts["Retry"].startswith(f"`{error.retry}`")


def test_the_errors_page_describes_nothing_else() -> None:
    """
    A section on an error that is gone would mislead.
    """
    assert set(real_tree(errors)) == set(sections(ERRORS_PAGE))


def test_names_on_demand_are_names_like_any_other() -> None:
    """
    `Client` is imported when it is first used: in a new process it is listed, found by every spelling, and always the
    same; a name that is not there is refused as ever.
    """
    script = """
import sys, onceward
assert set(onceward.__all__) <= set(dir(onceward)) and "onceward.client" not in sys.modules
from onceward import Client, AsyncClient
assert Client is onceward.Client is onceward.client.Client and AsyncClient is onceward.AsyncClient
assert not hasattr(onceward, "Cleint")
from onceward import *
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


class TestTheChecksThemselves:
    """Each check can fail."""

    def test_public_names_are_those_a_reader_would_use(self) -> None:
        """
        Private names, submodules and future imports are not exports.
        """
        module = ModuleType("planted")
        vars(module).update(Gate=object, _hidden=1, sub=ModuleType("sub"), annotations=1)

        assert public_names(module) == {"Gate"}

    def test_exports_out_of_order_are_noticed(self) -> None:
        """
        The order is the one that ruff keeps: constants, classes, the rest.
        """
        assert in_order(["derive", "Gate", "REAL", "AsyncGate", "LIMIT"]) == [
            "LIMIT",
            "REAL",
            "AsyncGate",
            "Gate",
            "derive",
        ]

    def test_a_missing_docstring_is_noticed(self) -> None:
        """
        On the class, a method, a property or a class method; an inherited description counts, a generated one does not.
        """

        class Described:
            """Words."""

            def told(self) -> None:
                """Words."""

        class Bare(Described):
            def told(self) -> None: ...

            def silent(self) -> None: ...

            @property
            def mute(self) -> int:
                return 1

            @classmethod
            def quiet(cls) -> None: ...

        class Generated:
            __doc__ = "Generated(x: int)"

        assert undescribed("Described", Described) == []
        assert undescribed("Bare", Bare) == ["Bare", "Bare.silent", "Bare.mute", "Bare.quiet"]
        assert undescribed("Generated", Generated) == ["Generated"]
        assert undescribed("LIMIT", 7) == []

    def test_the_drawing_is_read_as_drawn(self) -> None:
        """
        Depth decides the parent; going back up a level or two works.
        """
        drawing = """
    Root
    +-- One        words
    |   +-- Two    words
    |   |   +-- Three
    |   +-- Four
    +-- Five
        +-- Six

        Other prose.
"""

        assert drawn_tree(drawing) == {
            "Root": None,
            "One": "Root",
            "Two": "One",
            "Three": "Two",
            "Four": "One",
            "Five": "Root",
            "Six": "Five",
        }

    def test_the_classes_are_read_as_they_are(self) -> None:
        """
        Only exceptions that the module itself defines, with their true parents.
        """
        module = ModuleType("planted")
        exec("class Root(Exception): ...\nclass Leaf(Root): ...\nclass Other: ...", vars(module))
        vars(module)["Imported"] = errors.InDoubt

        assert real_tree(module) == {"Root": None, "Leaf": "Root"}

    def test_sections_are_read_as_written(self) -> None:
        """
        A heading without a code, or a part without its bold word, is seen as missing.
        """
        good = "## Good (`good`)\n\n- **Retry:** `never`: it\n  ran.\n- **What next:** look.\n\n"
        page = f"# E\n\n{good}## Bad\n\n- Retry: x\n"

        assert sections(page) == {
            "Good": ("good", {"Retry": "`never`: it\n  ran.", "What next": "look."}),
            "Bad": ("", {}),
        }
