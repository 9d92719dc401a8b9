"""What the package depends on: the core on nothing, and every extra on a version that was named."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from doc_pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    found = {name: without_a_version(some) for name, some in PROJECT["optional-dependencies"].items() if name != "dev"}

    assert {name: some for name, some in found.items() if some} == {}


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
