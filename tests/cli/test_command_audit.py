"""Who decided what from the command line: every command that decides leaves a trace, and `onceward audit` shows it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onceward import Gate
from onceward.cli import build_parser
from onceward.cli.command_table import GROUPS
from onceward.gate.operator_actions import id_of_key
from onceward.runtime import failpoints

DIGEST = "e9bb26a3a693"
TOKEN = "k3v9x2m8q4ab"
MESSAGE = "msg_4cd81f1c58f1d7a3b1f6f4b0a3e4c2d9"

DECISIONS = {
    "records release": (f"{DIGEST} --yes", "record.release"),
    "records reconcile": (f"{DIGEST} --happened 17", "record.reconcile"),
    "records decide": ("--probe shop:was_charged --all-in-doubt --yes", "record.reconcile"),
    "dead requeue": ("362b9c594b0a --app shop:dead", "letter.requeue"),
    "dead discard": ("362b9c594b0a --yes", "letter.discard"),
    "token create": ("--tenant acme", "token.create"),
    "token rotate": (TOKEN, "token.rotate"),
    "token revoke": (TOKEN, "token.revoke"),
    "tenant create": ("globex --prepaid", "tenant.create"),
    "tenant topup": ("acme 25 --key invoice-1", "tenant.topup"),
    "tenant quota": ("acme --records 5", "tenant.quota"),
    "tenant erase": ("acme --yes acme", "tenant.erase"),
    "db export": ("acme/shop shop.jsonl --from onceward-data --close", "database.close"),
    "db import": ("export.jsonl --to onceward-data", "database.import"),
    "db reopen": ("acme/shop --from onceward-data --yes shop", "database.reopen"),
    "ledger customer": ("acme cus_1 --environment live", "customer.add"),
    "relay enable": ("billing", "endpoint.enable"),
    "hooks add": ("crm --scheme stripe --secret-env S --handler shop:paid --tenant acme", "source.add"),
    "hooks requeue": ("stripe evt_1", "event.requeue"),
    "store adopt": ("--folder .", "sql.adopt"),
    "audit reasons": ("required", "audit.reasons"),
}
"""Every command that decides: what is typed, and the action that stands in the log."""

LOOKS = (
    "key", "lint", "doctor", "contract", "drill", "simulate", "conformance", "journal", "mcp", "serve", "dashboard",
    "records list", "records show", "dead list", "dead show", "token list", "tenant list", "tenant show",
    "ledger verify", "relay status", "hooks list", "hooks test", "audit list", "audit verify",
    "store check", "tenant prepare", "status", "completion",
)  # fmt: skip
"""What only looks, or is about code and not about a store."""

UPKEEP = (
    "records purge", "store init", "store migrate", "store install-functions", "store reseal",
    "relay init", "relay run", "migrate",
)  # fmt: skip
"""What changes a store without deciding anything: upkeep, tables, deliveries."""


@pytest.fixture
def everything(
    doubted: Any, given_up: Any, shop: Any, customers: None, outgoing: str, given_up_event: None, store: str,
    service_folder: Path,
) -> None:  # fmt: skip
    """Something for every decision to be about."""
    doubted("charge:order-17")
    given_up("charge:order-18")
    shop()


def commands() -> list[str]:
    """Every command, as it is typed."""
    names = []
    for group in GROUPS:
        parser = build_parser([group])
        for action in parser._subparsers._group_actions:  # type: ignore[union-attr]
            below = action.choices[group]._subparsers  # type: ignore[index]
            inner = [] if below is None else list(below._group_actions[0].choices)
            names += [f"{group} {one}" for one in inner] or [group]
    return names


def test_every_command_decides_or_only_looks() -> None:
    """
    A new command belongs into one of the three tables above. What decides takes a reason and an actor, and is run by
    the test below.
    """
    known = (*DECISIONS, *LOOKS, *UPKEEP)

    assert [one for one in commands() if one not in known and one.partition(" ")[0] not in known] == []
    for one in commands():
        group, _, name = one.partition(" ")
        typed = [group, *([name] if name else []), "--help"]
        assert ("--reason" in help_of(typed)) == (one in DECISIONS), one


def help_of(typed: list[str]) -> str:
    parser: Any = build_parser([typed[0]])
    for word in typed[:-1]:
        parser = parser._subparsers._group_actions[0].choices[word]
    return str(parser.format_help())


@pytest.mark.fault("a-command-decides-without-a-trace")
@pytest.mark.parametrize("command", DECISIONS)
def test_every_decision_leaves_a_trace(command: str, everything: None, run: Any, kind: str) -> None:
    """
    Who (a name, and the account of this machine), why, from where, and that it was done; the chain holds.
    """
    typed, action = DECISIONS[command]
    ran = run(*command.split(), *shlex.split(typed), "--reason", "ticket 4711", "--actor", "alice")
    assert ran.code == 0, ran.err
    found = run("audit", "list", "--action", action, "--json").document["decisions"]

    assert [(one["action"], one["outcome"], one["reason"], one["via"]) for one in found] == [
        (action, "done", "ticket 4711", "cli")
    ]
    assert found[0]["actor"].startswith("alice (")
    assert found[0]["actor"].endswith(f"@{socket.gethostname()})")
    assert run("audit", "verify").code == 0


@pytest.mark.parametrize("command", [one for one in DECISIONS if one != "audit reasons"])
@pytest.mark.fault("a-log-that-cannot-be-opened-is-done-without")
def test_nothing_is_decided_without_the_log(command: str, everything: None, run: Any, folder: Path) -> None:
    """
    The log's file cannot be written (here: it is none): every decision is refused, and what it was about is as it was.
    """
    (folder / "agent.audit.db").mkdir()
    before = contents(folder)
    ran = run(*command.split(), *shlex.split(DECISIONS[command][0]))

    assert ran.code in (2, 4), ran.out
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, list[Any]]:
    """What stands in every table of every database of the folder, but for times that only pass by."""
    found: dict[str, list[Any]] = {}
    for path in sorted((*folder.glob("*.db"), *folder.glob("onceward-data/databases/*/*.db"))):
        if path.is_dir():
            continue
        database = sqlite3.connect(path)
        for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
            # A subject's tables are made when they are first opened, with the version of their schema in them.
            if rows and not any(row[0] == "schema_version" for row in rows):
                found[f"{path.name} {table}"] = sorted(map(repr, rows))
        database.close()
    return found


class TestWhatStandsThere:
    """Enough to see what was decided, and nothing that is secret."""

    def test_before_and_after_of_a_record(self, doubted: Any, run: Any, gate: Gate) -> None:
        """
        States and fences; of the result a digest, because results are the tenant's.
        """
        doubted()
        run("records", "reconcile", DIGEST, "--happened", '"the-result"')
        [found] = run("audit", "list", "--subject", DIGEST, "--json").document["decisions"]

        assert (found["before"]["state"], found["after"]["state"]) == ("in_doubt", "settled")
        assert (found["tenant"], found["environment"]) == ("acme", "live")
        assert len(found["after"]["resultSha256"]) == 64
        assert "the-result" not in json.dumps(found)

    def test_no_secret_of_a_token_is_in_the_log(self, customers: None, run: Any, folder: Path) -> None:
        """
        Neither in a column nor anywhere in the file.
        """
        token = run("token", "create", "--tenant", "acme").out.strip()
        secret = token.rpartition("_")[2]
        held = b"".join(path.read_bytes() for path in folder.glob("agent.audit.db*"))

        assert len(secret) > 12
        assert secret.encode() not in held
        assert b"token.create" in held

    def test_a_refusal_stands_there_too(self, doubted: Any, run: Any) -> None:
        """
        What was tried and not allowed: failed, with the error's code.
        """
        doubted()
        assert run("records", "reconcile", DIGEST, "--happened", "1").code == 0
        assert run("records", "release", DIGEST, "--yes").code == 3
        ran = run("audit", "list")

        assert "failed (already_settled)" in ran.out or "failed (illegal_move)" in ran.out

    def test_what_is_not_there_is_not_decided(self, customers: None, run: Any) -> None:
        """
        A mistyped name does not get into the log.
        """
        run("tenant", "quota", "acme", "--records", "1")
        for typed in ("token revoke aaaaaaaaaaaa", "tenant quota nobody --records 1", "token create --tenant nobody"):
            assert run(*typed.split()).code == 1

        assert [one["action"] for one in run("audit", "list", "--json").document["decisions"]] == ["tenant.quota"]


class TestLooking:
    """`audit list` and `audit verify`."""

    @pytest.mark.fault("a-killed-decision-looks-done")
    def test_a_decision_that_was_cut_off_is_not_known(self, doubted: Any, run: Any, store: str) -> None:
        """
        The process died after it had decided: the record says what is so, and the list that it is not known.
        """
        doubted()
        script = (
            "import sys, onceward.audit; from onceward.cli import main; from onceward.runtime import failpoints; "
            "failpoints.arm('audit.outcome.before', 'kill'); main(sys.argv[1:])"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, "records", "release", DIGEST, "--yes"],
            env={**os.environ, "ONCEWARD_STORE": store}, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        ran = run("audit", "list")

        assert done.returncode == -signal.SIGKILL
        assert "not known" in ran.out
        assert "1 without an outcome: nobody knows whether they were carried out" in ran.err
        assert run("records", "show", DIGEST, "--json").document["state"] == "released"
        assert run("audit", "verify").code == 0

    def test_a_broken_log_is_exit_code_1_and_names_the_entry(self, doubted: Any, run: Any, folder: Path) -> None:
        """
        For people and for programs.
        """
        doubted()
        run("records", "release", DIGEST, "--yes", "--reason", "checked")
        whole = run("audit", "verify", "--json").document
        database = sqlite3.connect(folder / "agent.audit.db")
        database.execute("UPDATE onceward_audit_texts SET text = 'mallory' WHERE part = 'actor'")
        database.commit()
        database.close()
        ran, document = run("audit", "verify"), run("audit", "verify", "--json")

        assert (whole["entries"], whole["findings"], whole["head"][:2]) == (2, [], "2:")
        assert (ran.code, document.code) == (1, 1)
        assert "its actor is not what was written" in ran.out
        assert "the first broken entry is 1" in ran.err
        assert document.document["findings"] == [{"number": 1, "fault": "its actor is not what was written"}]

    def test_a_log_that_is_gone_is_found_by_its_head(self, doubted: Any, run: Any, folder: Path) -> None:
        """
        Without a head nobody can tell whether there ever was one; with one that was noted, it is a broken log.
        """
        doubted()
        run("records", "release", DIGEST, "--yes")
        head = run("audit", "verify", "--json").document["head"]
        assert run("audit", "verify", "--expect", head).code == 0
        for path in folder.glob("agent.audit.db*"):
            path.unlink()
        gone = run("audit", "verify", "--expect", head)

        assert run("audit", "verify").code == 2
        assert (gone.code, "numbers 1 to 2 are missing, because the whole log is missing" in gone.out) == (1, True)
        assert run("audit", "verify", "--expect", "1").code == 2

    def test_a_page_and_the_next(self, customers: None, run: Any) -> None:
        """
        The latest first; `--after` goes on. Times may be given as times or as durations.
        """
        for number in (1, 2, 3):
            run("tenant", "quota", "acme", "--records", str(number))
        first = run("audit", "list", "--limit", "2", "--json").document
        rest = run("audit", "list", "--after", str(first["next"]), "--json").document

        assert [one["after"]["quotaRecords"] for one in first["decisions"] + rest["decisions"]] == [3, 2, 1]
        assert rest["next"] is None
        assert len(run("audit", "list", "--since", "1h", "--json").document["decisions"]) == 3
        assert run("audit", "list", "--since", "2999-01-01T00:00:00Z").err == "no decisions\n"
        assert run("audit", "list", "--since", "yesterday").code == 2

    def test_control_characters_are_refused_and_names_are_kept(
        self, customers: None, run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        An actor from the environment; a reason that would move the cursor is refused before anything is done.
        """
        monkeypatch.setenv("ONCEWARD_ACTOR", "bob")
        assert run("tenant", "quota", "acme", "--records", "1", "--reason", "x\x1b[2J").code == 2
        assert run("tenant", "quota", "acme", "--records", "2").code == 0
        [found] = run("audit", "list", "--json").document["decisions"]

        assert (found["actor"].partition(" ")[0], found["before"]["quotaRecords"]) == ("bob", None)
        assert len(run("audit", "list", "--actor", found["actor"], "--json").document["decisions"]) == 1


def test_required_reasons_hold_for_every_command(customers: None, run: Any) -> None:
    """
    Once the log requires them, a command without --reason does nothing and says what to add.
    """
    assert run("audit", "reasons").code == 2  # Asking makes no log.
    assert run("audit", "reasons", "optional").out == "reasons are optional\n"
    assert run("audit", "reasons", "required", "--store", "sqlite:///mistyped.db").code == 2
    assert run("audit", "reasons", "required").out == "reasons are required\n"
    refused = run("tenant", "quota", "acme", "--records", "1")

    assert (refused.code, "add --reason TEXT" in refused.err) == (2, True)
    assert run("tenant", "show", "acme", "--json").document["quotaRecords"] is None
    assert run("tenant", "quota", "acme", "--records", "1", "--reason", "ticket 1").code == 0


def test_an_erased_tenant_is_gone_from_the_log(customers: None, doubted: Any, run: Any, folder: Path) -> None:
    """
    Nothing of it is left in the log's files, not in deleted pages either; who erased it, and why, is. The chain holds.
    """
    doubted()
    run("records", "release", DIGEST, "--yes", "--reason", "Jane Doe called")
    head = run("audit", "verify", "--json").document["head"]
    id = id_of_key("live:acme", "charge:order-17").hex()
    held = b"".join(path.read_bytes() for path in folder.glob("agent.audit.db*"))
    assert all(one in held for one in (b"acme", b"Jane Doe", id.encode()))
    assert run("tenant", "erase", "acme", "--yes", "acme", "--actor", "carol", "--reason", "request 4711").code == 0
    held = b"".join(path.read_bytes() for path in folder.glob("agent.audit.db*"))
    [erasure, release] = run("audit", "list", "--json").document["decisions"]

    assert [one for one in (b"acme", b"Jane Doe", id.encode()) if one in held] == []
    assert (erasure["actor"].partition(" ")[0], erasure["reason"], erasure["outcome"]) == (
        "carol", "request 4711", "done",
    )  # fmt: skip
    assert (release["subject"], release["reason"], release["erased"]) == (None, None, True)
    assert run("audit", "verify", "--expect", head).code == 0
    assert "erased" in run("audit", "list").out


def test_failpoints_of_the_log_are_known() -> None:
    """
    Each step has a name at which it can be cut off.
    """
    assert {one for one in failpoints.CATALOGUE if one.startswith("audit.")} == {
        f"audit.{at}.{side}"
        for at in ("intent", "outcome", "erase", "reasons")
        for side in ("before", "written", "after")
    }
