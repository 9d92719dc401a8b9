"""A framework that is missing or too old is said so, before anything else fails; and the floors are those we test."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import NamedTuple

import pytest

from onceward.agents import _requirements
from onceward.agents._requirements import require

ROOT = Path(__file__).resolve().parents[2]
FLOORS = Path(__file__).with_name("floors.txt")


class Needs(NamedTuple):
    """What an adapter requires, as it is written there."""

    module: str
    package: str
    floor: str
    extra: str


def needs() -> list[Needs]:
    """What every adapter requires."""
    found = []
    for folder in ("agents", "queues"):
        for file in sorted((ROOT / "src" / "onceward" / folder).glob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if (
                    isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
                    and isinstance(node.value.func, ast.Name) and node.value.func.id == "require"
                ):  # fmt: skip
                    said = [ast.literal_eval(argument) for argument in node.value.args]
                    found.append(Needs(f"onceward.{folder}.{file.stem}", *said))
    return found


NEEDS = needs()
FIRST = list({one.module: one for one in reversed(NEEDS)}.values())
"""The first requirement of each adapter."""


CLAIMED_LOWER = frozenset({"arq", "google-adk", "rq"})
"""Packages whose adapter claims less than its tests pass with. Raise it there, and take it out here."""


def judged() -> list[object]:
    """Every requirement; one that is known to be claimed too low must be seen to be."""
    low = pytest.mark.xfail(strict=True, reason="the adapter claims a version that its tests do not pass with")
    return [
        pytest.param(one, id=f"{one.module}-{one.package}", marks=[low] if one.package in CLAIMED_LOWER else [])
        for one in NEEDS
    ]


def numbers(version: str) -> list[int]:
    """A version as numbers, without the zeros at its end."""
    found = [int(number) for number in version.split(".")]
    while found and found[-1] == 0:
        found.pop()
    return found


def pins() -> dict[str, str]:
    """What the environment of the floors has, by package."""
    return dict(re.findall(r"^([a-z][a-z0-9-]*)==([0-9.]+)$", FLOORS.read_text(encoding="utf-8"), re.MULTILINE))


class TestRequire:
    def test_a_package_that_is_missing_is_named_with_what_brings_it(self) -> None:
        """
        The error says what to install, in the words of a command.
        """
        with pytest.raises(ImportError, match=r"not installed: pip install --upgrade 'onceward\[temporal\]'"):
            require("onceward-has-no-such-package", "1.20", "temporal")

    @pytest.mark.parametrize(
        ("found", "floor"),
        [("1.19.9", "1.20"), ("0.26", "0.26.1"), ("1.9", "1.10"), ("2.0.0", "2.0.1"), ("2.0rc1", "2.0.1")],
    )
    def test_a_version_that_is_too_old_is_refused(
        self, found: str, floor: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Numbers are compared as numbers, and both versions are in the error.
        """
        monkeypatch.setattr(_requirements, "version", lambda package: found)

        with pytest.raises(ImportError, match=f"needs temporalio {floor} or later, and {found} is installed"):
            require("temporalio", floor, "temporal")

    @pytest.mark.parametrize(
        ("found", "floor"),
        [("1.20.0", "1.20"), ("1.20", "1.20.0"), ("2.0", "1.35.2"), ("1.10", "1.9.9"), ("1.21.0.dev3", "1.20")],
    )
    @pytest.mark.fault("a-version-with-fewer-numbers-is-older")
    def test_a_version_that_is_new_enough_is_accepted(
        self, found: str, floor: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        However many numbers either of them has.
        """
        monkeypatch.setattr(_requirements, "version", lambda package: found)

        refused = None
        try:
            require("temporalio", floor, "temporal")
        except ImportError as error:
            refused = error
        assert refused is None


class TestAdapters:
    @pytest.mark.parametrize("one", FIRST, ids=lambda one: one.module)
    def test_an_adapter_without_its_framework_says_what_to_install(
        self, one: Needs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Before the framework's own import fails: in an environment that has none of them, too.
        """

        def missing(package: str) -> str:
            raise PackageNotFoundError(package)

        monkeypatch.setattr(_requirements, "version", missing)
        monkeypatch.delitem(sys.modules, one.module, raising=False)

        with pytest.raises(ImportError, match=re.escape(f"{one.package} {one.floor} or later")) as refused:
            importlib.import_module(one.module)
        assert f"'onceward[{one.extra}]'" in str(refused.value)

    def test_there_are_adapters(self) -> None:
        """
        What finds them still does.
        """
        assert {one.package for one in NEEDS} >= {"langchain", "mcp", "pydantic-ai-slim", "temporalio", "celery"}


class TestFloors:
    @pytest.mark.parametrize("one", judged())
    def test_the_floor_of_an_adapter_is_the_version_that_is_tested(self, one: Needs) -> None:
        """
        `floors.txt` has exactly what the adapter says that it can live with.
        """
        assert numbers(pins()[one.package]) == numbers(one.floor)

    @pytest.mark.parametrize("one", NEEDS, ids=lambda one: f"{one.module}-{one.package}")
    def test_an_extra_brings_what_its_adapter_needs(self, one: Needs) -> None:
        """
        The command in the error helps: the extra is there, and names the package.
        """
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        asked = dict(text.split(">=") for text in extras[one.extra])

        assert one.package in asked
        assert numbers(asked[one.package]) <= numbers(one.floor)
