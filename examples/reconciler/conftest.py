"""`pytest examples/reconciler --runs 300 --seed 7`: how often the Reconciler is killed, and where."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for _folder in (HERE, HERE.parent, HERE.parents[1] / "tests"):
    sys.path.insert(0, str(_folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options of our own."""
    parser.addoption("--runs", type=int, default=15, help="how many runs of the Reconciler are killed and resumed")
    parser.addoption("--seed", type=int, default=2030, help="which places they are killed at")


@pytest.fixture
def mail_port(tmp_path: Path) -> Iterator[int]:
    """A real mail server, which writes what it takes to `mails.jsonl`."""
    from mail_server import MailServer

    with MailServer(file=tmp_path / "mails.jsonl") as server:
        yield server.port
