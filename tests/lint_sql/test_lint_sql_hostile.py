"""Hostile texts: no parser takes the linter down, and what was not checked is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lint_sql_support import look

from onceward._core.sql_lexer import Dialect, tokens_of
from onceward.lint.findings import Finding
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import read_source
from onceward.lint.sql import parse_process
from onceward.lint.sql.parse_process import parse_elsewhere
from onceward.lint.sql.parsing import parse_sql
from onceward.lint.sql.schema import SqlSchema
from onceward.lint.sql.splitting import split_statements
from onceward.lint.sql.sql_lint import SqlOptions, lint_sql
from onceward.lint.sql.statement_codec import statements_of, to_document
from onceward.lint.sql.statements import Insert, Problem

INSERT = "INSERT INTO t (a) VALUES (1);\n"
HOSTILE = {
    "a sum of 100 KB": "SELECT " + "+".join(["1"] * 50_000) + ";",
    "parentheses": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000 + ";",
    "not": "SELECT " + "NOT " * 40_000 + "true;",
    "cases": "SELECT " + "CASE WHEN 1=1 THEN " * 3_000 + ";",
    "brackets": "SELECT a" + "[1" * 20_000 + "]" * 20_001 + ";",
    "what nobody closed": "SELECT (" * 5_000 + ";",
    "words": "SELECT " + "a, " * 250_000 + "a;",
}


@pytest.mark.slow
class TestParsers:
    """Texts on which parsers crash."""

    @pytest.mark.parametrize("dialect", list(Dialect), ids=lambda one: one.value)
    @pytest.mark.parametrize("name", HOSTILE)
    @pytest.mark.dose(1, each="name")
    def test_a_hostile_statement_does_not_hide_the_next_one(self, name: str, dialect: Dialect) -> None:
        """
        It is a finding, or it is read; the statement behind it is read in any case.
        """
        separator = "\nGO\n" if dialect is Dialect.TSQL else "\n"

        looked = look(HOSTILE[name] + separator + INSERT, dialect=dialect)

        assert [one.table for one in (judged.insert for judged in looked.judged)] == ["t"]
        assert set(looked.codes) <= {"OW201", "OW901", "OW903"}

    def test_a_long_insert_is_read_in_another_process(self) -> None:
        """
        Ten thousand rows are long and not wrong.
        """
        text = "INSERT INTO t (a, b) VALUES " + ", ".join(["(1, 'x')"] * 10_000) + " ON CONFLICT (a) DO NOTHING;"

        assert look(text).classes == "A"

    def test_a_million_lines_are_read_or_refused_in_one_finding(self, tmp_path: Path) -> None:
        """
        Empty lines are no trouble; ten megabytes of statements are one finding, before anything is parsed.
        """
        (tmp_path / "empty.sql").write_text("\n" * 1_000_000 + INSERT)
        (tmp_path / "long.sql").write_text("SELECT 1;\n" * 1_000_000)
        (tmp_path / "many.sql").write_text(";\n" * 900_000)

        found = lint_sql([tmp_path], LintSettings(), SqlOptions(), SqlSchema())

        assert [(Path(one.path).name, one.line, one.code) for one in found.report.findings] == [
            ("empty.sql", 1_000_001, "OW201"),
            ("long.sql", 1, "OW903"),
            ("many.sql", 600_001, "OW903"),
        ]

    def test_a_null_byte_is_a_finding(self, tmp_path: Path) -> None:
        """
        libpg_query would stop at it and say that all is well.
        """
        (tmp_path / "x.sql").write_bytes(b"SELECT 1;\0 INSERT INTO t VALUES (1);")

        source = read_source(tmp_path / "x.sql", "x.sql")

        assert isinstance(source, Finding)
        assert source.code == "OW902"


class TestOtherProcess:
    """The process that parses what is long."""

    @pytest.mark.fault("lint-sql-crash-is-clean")
    @pytest.mark.parametrize("how", ["killed", "hangs", "babbles", "names another class"])
    def test_whatever_becomes_of_it_is_a_problem(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A crash, a hang, or words that are no statements: nothing was checked, and that is said.
        """

        def run(*words: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
            if how == "hangs":
                raise subprocess.TimeoutExpired("parser", 1)
            said = {"killed": b"", "babbles": b"\xff{", "names another class": b'[{"is": "Path", "at": 1}]'}[how]
            return subprocess.CompletedProcess((), -signal.SIGSEGV if how == "killed" else 0, said, b"")

        monkeypatch.setattr(parse_process.subprocess, "run", run)

        problems = [one for one in parse_elsewhere(INSERT, 7, Dialect.POSTGRES) if isinstance(one, Problem)]

        assert [(one.at, one.kind) for one in problems] == [(7, "crash")]

    def test_statements_survive_the_way(self) -> None:
        """
        What is printed is what was read, for every kind of statement.
        """
        for folder in ("hazards", "clean"):
            for file in (Path(__file__).parent / folder).glob("*.sql"):
                dialect = next((one for one in Dialect if one.value in file.name), Dialect.POSTGRES)
                read = list(parse_sql(file.read_text(), dialect))

                assert statements_of(json.loads(json.dumps(to_document(read)))) == read

    def test_it_does_not_import_what_lies_in_the_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        A stranger's `pgparse.py` beside the files that are linted is not run.
        """
        monkeypatch.chdir(tmp_path)
        for name in ("pgparse.py", "json.py", "sqlglot.py"):
            (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")

        (read,) = parse_elsewhere(INSERT, 0, Dialect.POSTGRES)

        assert isinstance(read, Insert)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.skipif(os.name == "nt", reason="no such limits there")
    def test_it_is_under_limits(self) -> None:
        """
        Memory, processor time, no file and no core: set by itself before it reads a byte.
        """
        import resource
        import sys

        program = (
            "from onceward.runtime.process_limits import limit_this_process as limit; import resource as r;"
            "limit(address_bytes=3 << 30, processor_seconds=60);"
            "print(*(r.getrlimit(k)[0] for k in (r.RLIMIT_CORE, r.RLIMIT_FSIZE, r.RLIMIT_CPU, r.RLIMIT_AS)))"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment)

        core, file, seconds, address = (int(one) for one in done.stdout.split())
        assert (core, file, seconds) == (0, 0, parse_process.PROCESSOR_SECONDS)
        assert 0 < address <= parse_process.ADDRESS_BYTES or address == resource.RLIM_INFINITY


class TestSplitting:
    """Where statements end."""

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("SELECT ';'; SELECT \"a;b\"; SELECT $x$ ; $x$", 3),
            ("SELECT 1 /* ; /* ; */ ; */; -- ;\nSELECT E'\\';'", 2),
            ("CREATE FUNCTION f() BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END; SELECT 2", 2),
            ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2); SELECT 3", 2),
            ("COPY t FROM stdin;\nit's ; $$ odd\n\\.\nSELECT 1; SELECT 2", 3),
            ("\\connect x\nSELECT 1;\n\\echo 'it''s'\nSELECT 2;", 2),
            (";;;", 0),
            ("SELECT 'open; SELECT 1", 1),
        ],
    )  # fmt: skip
    def test_postgres(self, text: str, count: int) -> None:
        """
        Strings, names, comments, bodies, data of a dump.
        """
        assert len(list(split_statements(text, Dialect.POSTGRES))) == count

    def test_every_character_is_looked_at_a_bounded_number_of_times(self) -> None:
        """
        Things that open and never close: the number of tokens says that nothing starts over.
        """
        for text in ("'", '"', "/*", "$a$", "E'", "[", "(", "--\n", "$", "'' ", "{{", ":a"):
            for dialect in Dialect:
                assert sum(1 for _ in tokens_of(text * 20_000, dialect)) <= 60_000
