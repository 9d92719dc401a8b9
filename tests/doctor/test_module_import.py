"""
Modules of others are imported in another process: whatever they do there is a sentence here.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from onceward.doctor.key_sentences import sentence_of_operation
from onceward.doctor.module_import import import_operations
from onceward.errors import ConfigurationError

SHOP = """
import sys
from datetime import timedelta
from onceward import AsyncGate, Gate

print("x" * 5_000_000)
print("y" * 5_000_000, file=sys.stderr)
gate = Gate("memory://", scope="live:shop", retain=timedelta(hours=48))

@gate.once(key="charge:{user_id}:{order_id}", guarantee="keyed", keyed_for=86400)
def charge(user_id: str, order_id: str, amount: int) -> str:
    return "charged"

class Mailer:
    @gate.once(key="mail:{order_id}", after_expiry="run", name="confirmation mail")
    def send(self, order_id: str) -> str:
        return "sent"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to import from."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestSentences:
    """
    "Can you describe the idempotency key for every external call your agent makes in one sentence each?"
    """

    @pytest.mark.requirement("D84")
    @pytest.mark.fault("doctor-keys-of-nobody")
    @pytest.mark.fault("doctor-retention-is-not-said")
    def test_each_declared_function_gets_one_from_its_contract(self, here: Path) -> None:
        """
        What makes the key, whose it is, how long it holds, and what it refuses. Ten megabytes of printing disturb
        nobody.
        """
        (here / "shop_a.py").write_text(SHOP)

        found = [sentence_of_operation(one, where="shop_a") for one in import_operations(["shop_a"])]

        assert [one.sentence for one in found] == [
            "charge: one key per user_id and order_id, in the scope 'live:shop'; the result is kept 2 days, and for "
            "30 days after that a retry is refused; the same key with another amount is refused; after a crash it is "
            "sent again under the same key.",
            "confirmation mail: one key per order_id, in the scope 'live:shop'; the result is kept 2 days, and a retry "
            "after that runs again; after a crash a person decides.",
        ]

    def test_a_module_that_declares_nothing_has_none(self, here: Path) -> None:
        """
        Nor is one made up.
        """
        (here / "plain_module.py").write_text("x = 1\n")

        assert import_operations(["plain_module"]) == []


class TestTrouble:
    """Each has a clear error, and leaves nothing behind."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("import sys; sys.exit(3)", "ends the process (exit code 3)"),
            ("import os; os._exit(7)", "ended the process (exit code 7)"),
            ("raise ValueError('no\\x1b[2Jsettings')", "raised ValueError: no\\x1b[2Jsettings"),
            ("import no_such_library_at_all", "needs the module 'no_such_library_at_all', which is missing"),
            ("def broken(:", "raised SyntaxError"),
        ],
    )
    def test_what_cannot_be_imported_is_explained(self, text: str, words: str, here: Path) -> None:
        """
        With what to do about it, and nothing that could play tricks on a terminal.
        """
        (here / "trouble.py").write_text(text)

        with pytest.raises(ConfigurationError) as caught:
            import_operations(["trouble"])

        assert words in str(caught.value)
        assert str(caught.value).isprintable()

    @pytest.mark.fault("doctor-import-outlives-its-time")
    def test_one_that_hangs_is_ended_with_all_that_it_started(self, here: Path) -> None:
        """
        When the time is over. Its child is gone, too.
        """
        (here / "hangs.py").write_text(
            "import os, time\npid = os.fork()\nif pid:\n    open('child', 'w').write(str(pid))\ntime.sleep(600)\n"
        )

        for seconds in (2, 10, 60):  # However busy the machine is: until it came as far as its child.
            with pytest.raises(ConfigurationError, match=rf"took longer than {seconds} s, and was ended.*--seconds"):
                import_operations(["hangs"], seconds=seconds)
            if (here / "child").exists():
                break

        assert has_ended(int((here / "child").read_text()))

    def test_one_that_forks_is_reported_once(self, here: Path) -> None:
        """
        Both sides come out of the import; one of them reports.
        """
        (here / "forks.py").write_text(f"import os\nos.fork()\n{SHOP}")

        assert [one.name for one in import_operations(["forks"])] == ["charge", "confirmation mail"]

    @pytest.mark.parametrize(
        ("name", "words"), [("nowhere", "there is no module 'nowhere'"), ("a-b", "not a module name")]
    )
    def test_an_unknown_module_is_said_to_be_unknown(self, name: str, words: str, here: Path) -> None:
        """
        And nothing is started for a name that cannot be one.
        """
        with pytest.raises(ConfigurationError, match=words):
            import_operations([name])


def has_ended(pid: int) -> bool:
    """Whether a process that was killed is gone; the limit is for one that was not."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)
