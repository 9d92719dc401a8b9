"""`onceward doctor`: the checklist from the command line, and what it is given that it cannot use."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from onceward.cli.doctor import COMMANDS
from onceward.doctor.examination import BOXES
from servers import postgres

KEYED = """
from onceward import Gate

gate = Gate("memory://", scope="live:shop")


@gate.once(key="charge:{order_id}", guarantee="keyed", keyed_for=86400)
def charge(order_id: str, amount: int) -> str:
    return "charged"
"""


@pytest.fixture
def project(folder: Path) -> Path:
    """A folder with one gated function."""
    (folder / "till.py").write_text(KEYED)
    return folder


def left(folder: Path) -> set[str]:
    """What is in a folder."""
    return {one.relative_to(folder).as_posix() for one in folder.rglob("*") if "__pycache__" not in one.parts}


class TestDoctor:
    """`doctor`."""

    @pytest.mark.fault("doctor-unknown-is-fine")
    def test_an_empty_box_makes_the_exit_code_1(self, project: Path, run: Any) -> None:
        """
        What cannot be known from here is as good as missing: no store was named.
        """
        ran = run("doctor")

        assert ran.code == 1
        assert (
            "[x] Keys use stable identifiers (user_id, task_id, step_id): 1 key made of order_id (till.py:7)" in ran.out
        )
        assert "[?] The store passes its own checks: pass --store URL to check a live store" in ran.out
        assert left(project) == {"till.py"}

    def test_none_makes_it_0(self, project: Path, store: str, run: Any) -> None:
        """
        With the store that ONCEWARD_STORE names.
        """
        ran = run("doctor", "--path", "till.py")

        assert ran.out.splitlines()[-1] == f"None of {len(BOXES)} boxes is empty."
        assert ran.code == 0

    def test_programs_get_one_document(self, project: Path, run: Any) -> None:
        """
        With the ids that statements are made under.
        """
        document = run("doctor", "--json").document

        assert [one["id"] for one in document["boxes"]] == [one.id for one in BOXES]
        assert (document["healthy"], document["files"]) == (False, 1)
        assert document["boxes"][0]["places"] == [{"path": "till.py", "line": 7}]

    def test_the_page_is_written_whole_or_not_at_all(self, project: Path, run: Any) -> None:
        """
        Beside the report, and over an older one.
        """
        assert run("doctor", "--html", "report.html").err == "onceward: the page is in report.html\n"
        assert (project / "report.html").read_text().endswith("</html>\n")
        refused = run("doctor", "--html", "nowhere/report.html")

        assert (refused.code, refused.out) == (2, "")
        assert left(project) == {"till.py", "report.html"}

    def test_statements_are_read_from_pyproject(self, project: Path, run: Any) -> None:
        """
        And shown as what they are.
        """
        (project / "till.py").write_text(KEYED.replace('key="charge:{order_id}"', "key=make_key"))
        said = (
            "[tool.onceward.doctor.answers]\ndeterministic = 'a digest of the order: keys.py, with a property test'\n"
        )
        (project / "pyproject.toml").write_text(said)

        assert "[s] Keys are deterministic" in run("doctor").out

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one.name)
    def test_the_examples_run_as_they_stand(self, command: Any, store: str, shop: Any, run: Any) -> None:
        """
        `# exit N` says how one ends.
        """
        shop()
        for line in command.examples:
            typed, _, code = line.partition("  # exit ")

            assert run(*shlex.split(typed)[1:]).code == int(code or 0)


class TestBadInput:
    """Each has a clear error, and leaves nothing behind."""

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            (["--path", "nowhere"], "there is no file or folder 'nowhere'"),
            (["--path", "empty"], "there are no Python or SQL files in empty"),
            (["--config", "nowhere.toml"], "nowhere.toml: cannot be read"),
            (["--config", "bad.toml"], "bad.toml: is not TOML"),
            (["--config", "unknown.toml"], "has no box 'jitters'"),
            (["--config", "short.toml"], "must be a sentence that says how you know"),
            (["--store", "sqlite:///nowhere.db"], "there is no file nowhere.db"),
            (["src"], "there is no command 'src': to name a file or folder, use --path src"),
        ],
    )
    def test_what_cannot_be_meant_is_2(self, typed: list[str], words: str, project: Path, run: Any) -> None:
        """
        One line that says what to do.
        """
        (project / "empty").mkdir()
        (project / "bad.toml").write_text("[tool")
        (project / "unknown.toml").write_text("[tool.onceward.doctor.answers]\njitters = 'a sentence of some length'\n")
        (project / "short.toml").write_text("[tool.onceward.doctor.answers]\nfull-jitter = 'yes'\n")
        before = left(project)

        ran = run("doctor", *typed)

        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err
        assert ran.err.count("\n") == 1
        assert left(project) == before

    def test_an_unreadable_pyproject_is_said_to_be(self, project: Path, run: Any) -> None:
        """
        It may hold statements and exclusions, so nothing is said without it.
        """
        (project / "pyproject.toml").write_bytes(b"\xff\xfe[tool]")

        ran = run("doctor")

        assert (ran.code, ran.out) == (2, "")
        assert "pyproject.toml: is not TOML" in ran.err

    def test_a_project_with_a_syntax_error_is_examined_and_not_believed(self, project: Path, run: Any) -> None:
        """
        The line is named in every box that it may empty.
        """
        (project / "broken.py").write_text("def charge(:\n")

        ran = run("doctor")

        assert ran.code == 1
        said = "[?] Keys are deterministic (same input = same key): cannot be known while some files cannot be read"
        assert said in ran.out
        assert "(broken.py:1)" in ran.out
        assert "broken.py:1 cannot be read, so its keys are not described" in run("doctor", "keys").err

    @pytest.mark.fault("doctor-obeys-what-is-switched-off")
    def test_a_rule_that_is_switched_off_for_the_linter_is_still_asked(self, project: Path, run: Any) -> None:
        """
        Neither a key of the time nor a file that cannot be parsed becomes evidence by an `ignore`.
        """
        (project / "pay.py").write_text("import time\npay(idempotency_key=time.time())\n")
        (project / "pyproject.toml").write_text('[tool.onceward.lint]\nignore = ["OW1", "OW9"]\n')
        timed = run("doctor").out
        (project / "pay.py").write_text("def pay(:\n")

        broken = run("doctor").out

        assert "[ ] Keys do NOT include timestamps or retry counts" in timed
        assert "[?] Keys do NOT include timestamps or retry counts: cannot be known" in broken

    def test_a_store_that_is_away_is_4_before_any_file_is_read(self, project: Path, run: Any) -> None:
        """
        As for every other command.
        """
        ran = run("doctor", "--store", f"postgresql://postgres@127.0.0.1:{postgres.free_port()}/postgres")

        assert (ran.code, ran.out) == (4, "")
        assert ran.err.startswith("onceward: ")

    def test_a_store_without_permission_is_4(self, project: Path, run: Any) -> None:
        """
        It says what the role may not do.
        """
        postgres.needed()
        server = postgres.running()
        server.execute("DROP DATABASE IF EXISTS doctor_locked")
        server.execute("CREATE DATABASE doctor_locked")
        assert run("store", "init", "--store", server.url("doctor_locked")).code == 0
        with server.role("doctor_guest", database="doctor_locked"):
            ran = run("doctor", "--store", server.url("doctor_locked", user="doctor_guest"))

        assert (ran.code, ran.out) == (4, "")
        assert "permission" in ran.err


class TestKeys:
    """`doctor keys`."""

    def test_nothing_is_imported_unless_it_is_named(self, project: Path, run: Any) -> None:
        """
        Without a module the text is read; a module that would delete something does not run.
        """
        (project / "till.py").write_text(f"open('ran', 'w')\n{KEYED}")

        read = run("doctor", "keys")
        assert not (project / "ran").exists()
        imported = run("doctor", "keys", "till")

        assert (read.code, imported.code) == (0, 0)
        assert read.out == imported.out
        assert read.out.startswith(
            "charge: one key per order_id, in the scope 'live:shop'; the result is kept 24 hours"
        )
        assert (project / "ran").exists()

    def test_programs_get_sentences_and_what_is_not_known(self, project: Path, run: Any) -> None:
        """
        A key that the text does not show makes the exit code 1.
        """
        (project / "till.py").write_text(KEYED.replace('"charge:{order_id}"', "elsewhere.make_key"))

        ran = run("doctor", "keys", "--json")

        assert ran.code == 1
        assert [(one["name"], one["unresolved"]) for one in ran.document] == [("charge", ["key"])]
        assert "till.py:8: the text does not show key; `onceward doctor keys MODULE` imports it and knows" in ran.err

    @pytest.mark.parametrize(
        ("typed", "words"),
        [
            (["nowhere"], "there is no module 'nowhere' here"),
            (["till", "--path", "till.py"], "give either modules"),
            (["till", "--seconds", "0"], "a number of seconds up to 600"),
            (["--path", "empty"], "there are no Python files there"),
        ],
    )
    def test_what_cannot_be_meant_is_2(self, typed: list[str], words: str, project: Path, run: Any) -> None:
        """
        One line that says what to do.
        """
        (project / "empty").mkdir()

        ran = run("doctor", "keys", *typed)

        assert (ran.code, ran.out) == (2, "")
        assert words in ran.err

    def test_a_module_without_operations_is_1(self, project: Path, run: Any) -> None:
        """
        There is nothing to describe, and that is the gap.
        """
        (project / "plain.py").write_text("x = 1\n")

        assert run("doctor", "keys", "plain") == (1, "", "onceward: no function in plain is declared with gate.once\n")
