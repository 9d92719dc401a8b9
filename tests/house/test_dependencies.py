"""What the package depends on: the core on nothing, and every extra on a version that was named."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib

import pytest
from doc_pages import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OLDEST = re.compile(r"[\w.-]+(?:\[[\w,-]+\])?\s*(?:==|>=)\s*\d[\w.]*")
OURS = re.compile(r"onceward(?:\[[\w,-]+\])?")
"""An extra may be made of others."""


def without_a_version(requirements: list[str]) -> list[str]:
    """Those that would take whatever version there is, or a package from somewhere else."""
    plain = [one.partition(";")[0].strip() for one in requirements]
    return [one for one in plain if not OURS.fullmatch(one) and (" @ " in one or not OLDEST.match(one))]


def test_the_core_depends_on_nothing() -> None:
    """
    `pip install onceward` installs onceward.
    """
    assert PROJECT["dependencies"] == []


@pytest.mark.fault("an-extra-takes-any-version")
def test_every_extra_names_the_oldest_version_that_works() -> None:
    """
    No requirement without a version, and none from an address.
    """
    found = {name: without_a_version(some) for name, some in PROJECT["optional-dependencies"].items()}

    assert {name: some for name, some in found.items() if some} == {}


@pytest.mark.fault("a-requirement-without-a-tested-version")
def test_what_developers_need_has_a_floor_and_a_version_that_was_tested() -> None:
    """
    Each line of requirements/dev.txt, and each requirement of the extras that it takes, is in the constraints, and the
    version there is one that the line allows. `make constraints` writes them.
    """
    lines = [one for one in read_lines("dev.txt") if not one.startswith("-e ")]
    [ours] = [one for one in read_lines("dev.txt") if one.startswith("-e ")]
    extras = re.findall(r"[\w-]+", ours.partition("[")[2])
    wanted = [Requirement(one) for one in (*lines, *(one for extra in extras for one in EXTRAS[extra]))]
    pins = dict(one.split("==") for one in read_lines("constraints.txt"))
    unpinned = [one.name for one in wanted if one.marker is None and canonicalize_name(one.name) not in pins]
    below = [
        str(one) for one in wanted if (pin := pins.get(canonicalize_name(one.name))) and not one.specifier.contains(pin)
    ]

    assert without_a_version(lines) == []
    assert (unpinned, below) == ([], [])
    assert pins.keys() & {"onceward", "pip", "setuptools"} == set()
    assert [line for line in lines if [Requirement(one).name for one in lines].count(Requirement(line).name) > 1] == []


def read_lines(name: str) -> list[str]:
    """The lines of a file of requirements, without comments."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.fault("an-async-session-lacks-greenlet")
def test_the_extra_for_sqlalchemy_has_what_an_async_session_needs() -> None:
    """
    greenlet: SQLAlchemy itself requires it only by its extra `asyncio`.
    """
    asked = [Requirement(one) for one in EXTRAS["sqlalchemy"]]
    theirs = [Requirement(one) for one in importlib.metadata.requires("sqlalchemy") or []]
    found = {
        one.name
        for ours in asked
        for extra in ours.extras
        for one in theirs
        if one.marker is not None and one.marker.evaluate({"extra": extra})
    }

    assert "greenlet" in {*found, *(one.name for one in asked)}


def test_one_without_a_version_is_found() -> None:
    """
    The check itself.
    """
    requirements = ["a>=1", "b[x]>=2.0; python_version < '4'", "onceward[serve]", "c", "d<3", "e @ git+https://host/e"]

    assert without_a_version(requirements) == ["c", "d<3", "e @ git+https://host/e"]


def test_the_floors_of_the_service_can_be_tried() -> None:
    """
    `make test-floors` installs exactly the lowest version of each library that serving needs.
    """
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"^FLOORS := (.+)$", makefile, re.MULTILINE)
    assert extras is not None
    names = extras[1].split()
    assert {"serve", "postgres", "sealed"} <= set(names)
    program = [sys.executable, str(ROOT / "tools" / "floors.py"), *names]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()

    wanted = [one for name in names for one in PROJECT["optional-dependencies"][name]]
    assert printed == [re.sub(r"\[.*\]", "", one).replace(">=", "==") for one in wanted]
