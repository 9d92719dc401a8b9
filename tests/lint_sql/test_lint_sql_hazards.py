"""Planted hazards are found, what is right raises no alarm, and each rule's own examples hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from lint_sql_support import Part, look, migrate, parts

from onceward.lint.findings import Rule
from onceward.lint.sql.rules import MIGRATION_CODES, RULES


def _found(part: Part, folder: Path) -> set[tuple[int, str]]:
    findings = migrate(folder, part.text) if part.file.startswith("migration") else look(part.text).findings
    return {(one.line, one.code) for one in findings}


class TestHazards:
    """Of the hazards that were written for this, in varied styles and three dialects."""

    def test_there_are_a_hundred_and_of_every_rule_two(self) -> None:
        """
        At least 100, and each rule is planted at least twice.
        """
        planted = Counter(code for part in parts("hazards") for _, code in part.wanted)

        assert planted.total() >= 100
        assert {rule.code for rule in RULES if planted[rule.code] < 2} == set()

    @pytest.mark.requirement("E22", "E23", "B27", "B28")
    @pytest.mark.fault("lint-sql-merge-is-fine", "lint-sql-no-left-join", "lint-sql-default-is-fine")
    def test_at_least_ninety_five_in_a_hundred_are_found(self, tmp_path: Path) -> None:
        """
        On their own line and under their own code. A look before an INSERT and MERGE are guards nowhere; the
        rules about single words of a migration are among them.
        """
        found, missed = 0, []
        for part in parts("hazards"):
            seen = _found(part, tmp_path)
            found += len(part.wanted & seen)
            missed += [(part.file, part.number, *one) for one in sorted(part.wanted - seen)]

        assert found >= 0.95 * (found + len(missed)), missed
        assert missed == []  # Today it is all of them.

    def test_nothing_else_is_said_about_them(self, tmp_path: Path) -> None:
        """
        A part with a hazard has that hazard and no other.
        """
        more = [
            (part.file, part.number, one) for part in parts("hazards") for one in _found(part, tmp_path) - part.wanted
        ]

        assert more == []


class TestClean:
    """What is right."""

    @pytest.mark.parametrize("part", list(parts("clean")), ids=lambda part: f"{part.file}-{part.number}")
    def test_what_is_right_raises_no_alarm(self, part: Part, tmp_path: Path) -> None:
        """
        Not one finding, in any dialect.
        """
        assert _found(part, tmp_path) == set()


class TestExamples:
    """The examples on the rules' pages."""

    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
    def test_the_bad_example_has_its_own_hazard_only_and_the_good_one_none(self, rule: Rule, tmp_path: Path) -> None:
        """
        As `lint explain` shows them.
        """
        is_migration = rule.code in MIGRATION_CODES

        bad, good = (
            {one.code for one in (migrate(tmp_path, text) if is_migration else look(text).findings)}
            for text in (rule.bad, rule.good)
        )

        assert bad == {rule.code}
        assert good == set()
