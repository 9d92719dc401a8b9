"""
The sixteen boxes: each is filled by a project that has what it asks for, and emptied by the one change that takes it
away.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest
from examining import DOCUMENTS, answers, missing, states, write, write_documents

from onceward.doctor.box import Box, BoxState
from onceward.doctor.checklist import CHECKLIST
from onceward.doctor.report import as_lines, by_group
from onceward.doctor.settings_reader import DoctorSettings

GATED = """
    import os, time, uuid
    import stripe
    from onceward import Breaker, CircuitOpen, Gate, Retry

    gate = Gate("sqlite:///shop.db", scope="live:shop")
    payments = Breaker("payments", threshold=5, recovery=30)
    policy = Retry(attempts=3, base=0.2, breaker=payments)

    @gate.once(key="charge:{order_id}", guarantee="keyed", retry=policy, breaker=payments)
    def charge(operation, order_id, amount):
        return stripe.Charge.create(amount=amount, idempotency_key=operation.downstream_key("stripe"))

    def pay(order_id, amount):
        try:
            return charge(order_id, amount)
        except CircuitOpen:
            return "a person will call you back"
"""
LOOP = (DOCUMENTS / "retry.py.txt").read_text()
KEY = 'operation.downstream_key("stripe")'
CLASSIFIER = LOOP[: LOOP.index("import random")]
CHANGES = {
    "stable-identifiers": (KEY, 'f"charge:{email}"', set()),
    "no-time-or-attempt": (KEY, 'f"charge:{order_id}:{time.time()}"', {"deterministic"}),
    "operation-type": (KEY, 'f"{order_id}:{user_id}"', set()),
    "deterministic": (KEY, "str(uuid.uuid4())", set()),
    "errors-classified": ("if not should_retry(e):\n                raise", "pass", {"no-client-errors"}),
    "no-client-errors": ("HTTPStatus.BAD_GATEWAY, ", "HTTPStatus.BAD_REQUEST, HTTPStatus.BAD_GATEWAY, ", set()),
    "server-errors": (CLASSIFIER, "def should_retry(error):\n    return error.is_odd\n\n", set()),
    "retry-limit": ("for attempt in range(max_retries):", "while True:", set()),
    "exponential": ("base_delay * (2 ** attempt)", "base_delay", set()),
    "full-jitter": ("random.uniform(0, ceiling)", "ceiling", set()),
    "delay-cap": ("min(base_delay * (2 ** attempt), max_delay)", "base_delay * (2 ** attempt)", set()),
    "base-delay": ("base_delay=0.1,", "", set()),
    "breaker-each": (", breaker=payments)\n    def charge", ")\n    def charge", set()),
    "failure-threshold": ("threshold=5, ", "", set()),
    "recovery-timeout": (", recovery=30", "", set()),
    "open-fallback": ("except CircuitOpen:", "except ValueError:", set()),
}
"""Box -> what is taken away, what stands there instead, and which other boxes that empties as well."""
SIXTEEN = {one.id for one in CHECKLIST}


def listed(group: str, boxes: Iterable[Box]) -> list[str]:
    return [group, *(f"[ ] {one.sentence}" for one in boxes)]


def of_checklist(empty: set[str]) -> set[str]:
    return empty & SIXTEEN


class TestBoxes:
    """Evidence, or what to do."""

    @pytest.mark.requirement("D81", "D82", "D83")
    @pytest.mark.fault("doctor-boxes-left-out")
    def test_there_are_the_sixteen_of_the_document_in_its_order(self, tmp_path: Path) -> None:
        """
        One line for each: four about keys, four about errors, four about back-off, four about breakers.
        """
        write(tmp_path, shop=GATED)
        found = answers(tmp_path)

        assert [one.id for one in CHECKLIST] == list(CHANGES)
        assert set(found) >= SIXTEEN
        lines = (DOCUMENTS / "checklist.txt").read_text().splitlines()
        written = [line for group, boxes in groupby(CHECKLIST, lambda one: one.group) for line in listed(group, boxes)]
        assert written == [line for line in lines if line]

    @pytest.mark.requirement("D81", "D82", "D83")
    @pytest.mark.fault("doctor-decorators-do-not-guard")
    def test_a_project_that_has_everything_fills_all_of_them(self, tmp_path: Path) -> None:
        """
        Each with the place where that is to be seen.
        """
        found = answers(write(tmp_path, shop=GATED, retry=LOOP))

        assert {id: states(found)[id] for id in SIXTEEN} == dict.fromkeys(SIXTEEN, BoxState.FILLED)
        assert all(found[id].places for id in SIXTEEN)
        assert "charge" not in found["stable-identifiers"].words
        assert found["failure-threshold"].line.endswith("opens after 5 (" + str(tmp_path / "shop.py") + ":7)")

    @pytest.mark.requirement("D81", "D82", "D83")
    @pytest.mark.fault("doctor-findings-are-not-heard")
    @pytest.mark.fault("doctor-classified-is-not-asked")
    @pytest.mark.fault("doctor-breakers-anywhere")
    @pytest.mark.parametrize("box", CHANGES)
    def test_each_is_emptied_by_what_it_is_about(self, box: str, tmp_path: Path) -> None:
        """
        And no other, unless the same line is behind both.
        """
        old, new, also = CHANGES[box]
        assert (old in GATED) != (old in LOOP)

        found = answers(write(tmp_path, shop=GATED.replace(old, new), retry=LOOP.replace(old, new)))

        assert of_checklist(missing(found)) == {box, *also}
        assert found[box].words
        assert found[box].places

    def test_what_does_not_occur_is_neither_evidence_nor_a_lack(self, tmp_path: Path) -> None:
        """
        A project without retries has no back-off to get wrong; one without any key cannot be judged.
        """
        found = answers(write(tmp_path, empty="x = 1\n"))

        assert found["full-jitter"].state is BoxState.IDLE
        assert found["breaker-each"].state is BoxState.IDLE
        assert found["stable-identifiers"].state is BoxState.UNKNOWN
        assert "no key and no external call in 1 file" in found["stable-identifiers"].words

    @pytest.mark.fault("doctor-unread-files-are-fine")
    def test_a_file_that_cannot_be_parsed_empties_what_it_may_hide(self, tmp_path: Path) -> None:
        """
        What is not known is not green.
        """
        write(tmp_path, shop=GATED, retry=LOOP, broken="def charge(:\n")

        found = answers(tmp_path)

        assert missing(found) >= SIXTEEN
        assert [str(one) for one in found["full-jitter"].places] == [f"{tmp_path}/broken.py:1"]

    @pytest.mark.fault("doctor-statements-win")
    def test_a_statement_fills_what_cannot_be_known_and_nothing_else(self, tmp_path: Path) -> None:
        """
        A reason in pyproject.toml is somebody's word. It does not outweigh what was seen.
        """
        write(tmp_path, shop=GATED.replace("threshold=5, ", "").replace("except CircuitOpen", "except ValueError"))
        said = "five in a row, by the load test of 2030-03"
        stated = DoctorSettings({"failure-threshold": said, "open-fallback": "there is one, believe me"})

        found = answers(tmp_path, settings=stated)

        assert found["failure-threshold"].state is BoxState.STATED
        assert said in found["failure-threshold"].line
        assert found["open-fallback"].state is BoxState.EMPTY


class TestDocument:
    """The document's own snippets, held against the document's own list."""

    @pytest.mark.requirement("D81", "D83")
    @pytest.mark.fault("doctor-keys-without-an-operation")
    @pytest.mark.fault("doctor-breakers-anywhere")
    def test_it_names_what_they_lack(self, tmp_path: Path) -> None:
        """
        "Keys include operation type to prevent collisions": the first key of the document does not. One dependency of
        several has a breaker. The server looks into its cache first, acts, and remembers afterwards.
        """
        found = answers(write_documents(tmp_path))

        assert missing(found) == {
            "operation-type",
            "full-jitter",
            "breaker-each",
            "constraint-decides",
            "violation-handled",
            "retention-agreed",
            "store-healthy",
            "nothing-in-doubt",
            "executed-once",
            "keys-described",
        }
        assert "book_flight: user_id, task_id, step_id" in found["operation-type"].words
        assert {one.path.rpartition("/")[2] for one in found["breaker-each"].places} == {
            "book_flight.py",
            "strategies.py",
            "temporal_workflow.py",
        }
        assert "api.book" in found["breaker-each"].words
        assert [one.path.rpartition("/")[2] for one in found["full-jitter"].places] == ["temporal_workflow.py"]
        assert [str(one).rpartition("/")[2] for one in found["keys-described"].places] == ["breaker.py:34"]

    @pytest.mark.requirement("D82")
    @pytest.mark.fault("doctor-predicates-are-not-followed")
    def test_it_sees_what_they_have(self, tmp_path: Path) -> None:
        """
        Errors are told apart, pauses double, are random and capped; the breaker has its numbers and its fallback.
        """
        found = answers(write_documents(tmp_path))

        assert found["errors-classified"].words == "3 retries: errors are distinguished"
        assert found["exponential"].state is found["delay-cap"].state is BoxState.FILLED
        assert found["failure-threshold"].words == "opens after 5"
        assert found["open-fallback"].state is BoxState.FILLED


def test_people_get_a_line_for_each_under_its_heading(tmp_path: Path) -> None:
    """
    With a mark, and at the end how it stands.
    """
    from onceward.doctor.code_facts import CodeFacts
    from onceward.doctor.examination import Evidence, examine
    from onceward.doctor.sql_reader import SqlFacts

    examined = examine(Evidence(CodeFacts(files=1), SqlFacts()))
    lines = as_lines(examined).splitlines()

    assert len([line for line in lines if line[:1] == "["]) == len(examined) + 1
    assert [group for group, _ in by_group(examined)][:4] == [
        "KEY GENERATION",
        "ERROR HANDLING",
        "BACKOFF",
        "CIRCUIT BREAKERS",
    ]
    assert lines[-1].endswith("boxes are empty.")
