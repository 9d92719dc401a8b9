"""A database of each kind, and a way to type commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from migrate_subject import Subject, subject_of

from onceward.cli import main
from servers.postgres import kinds


class Typed(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Typed]:
    """Type `onceward migrate ...`, in this process."""

    def typed(*words: str) -> Typed:
        capsys.readouterr()
        code = main(["migrate", *words])
        return Typed(code, *capsys.readouterr())

    return typed


@pytest.fixture(params=kinds())
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    """An empty database of each kind."""
    with subject_of(request.param, tmp_path) as made:
        yield made
