"""The pre-commit hook: what it runs, on which files, and how that ends."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOOKS = {
    hook["id"]: hook
    for part in (ROOT / ".pre-commit-hooks.yaml").read_text().split("\n- ")[1:]
    for hook in [dict(re.findall(r"^(?:- |  )(\w+): (.+)$", f"- {part}", re.MULTILINE))]
}
HOOK = HOOKS["onceward-lint-python"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("import time\npay(idempotency_key=time.time())\n", 1), ("pay(idempotency_key=order.id)\n", 0)],
)
def test_the_hook_ends_with_one_if_something_was_found(text: str, code: int, tmp_path: Path) -> None:
    """
    As pre-commit runs it: the entry, and the names of files behind it.
    """
    (tmp_path / "pay.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(HOOK["entry"]), "pay.py"], cwd=tmp_path, capture_output=True, check=False
    )

    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ALTER TABLE a ADD COLUMN idempotency_key text NOT NULL DEFAULT '';\n", 1),
        ("CREATE TABLE a (idempotency_key text NOT NULL UNIQUE);\n", 0),
    ],
)
def test_the_hook_for_migrations_looks_at_their_folders(text: str, code: int, tmp_path: Path) -> None:
    """
    One with a default for its key is refused.
    """
    hook = HOOKS["onceward-lint-migration"]
    (tmp_path / "1.sql").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(hook["entry"]), "1.sql"], cwd=tmp_path, capture_output=True, check=False
    )

    assert done.returncode == code, done.stderr
    assert re.search(hook["files"], "app/migrations/1.sql")
    assert not re.search(hook["files"], "app/queries/1.sql")


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("src/pay.py", False),
        ("pay.py", False),
        ("src/attest.py", False),
        ("src/contest/pay.py", False),
        ("tests/helpers.py", True),
        ("src/app/test_pay.py", True),
        ("pay_test.py", True),
        ("conftest.py", True),
    ],
)
def test_the_hook_leaves_tests_out(path: str, left_out: bool) -> None:
    """
    Files that are named are looked at, and pre-commit names each: so the hook must leave out what the folder would.
    """
    assert bool(re.search(HOOK["exclude"], path)) is left_out
