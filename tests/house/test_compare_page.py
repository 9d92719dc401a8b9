"""The page that compares us with peers is what the kept answers say, and can say nothing else."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
COUNTS = ("effects", "killed", "large", "odd", "outer", "inner")
"""What counts effects in an answer."""
ONE = re.compile(r"\bone effect\b")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    yield


def _kept() -> Any:
    from compare.results import read

    return copy.deepcopy(read())


def _made(kept: Any) -> str:
    from compare import page

    return page.page(page.WORDS.read_text(encoding="utf-8"), kept)


def _answers() -> list[Any]:
    """Every kept answer with its question."""
    from compare.questions import questions

    kept = _kept()["answers"]
    return [
        (question, peer, answer["seen"])
        for question in questions().values()
        for peer, answer in kept.get(question.name, {}).items()
        if "seen" in answer
    ]


def test_the_page_is_what_was_answered() -> None:
    """
    docs/explanation/compared-with-peers.md, and the README's table if it has one: nobody edits a sentence by hand.
    """
    from compare import page

    assert page.PAGE.read_text(encoding="utf-8") == page.made(), "run python -m compare.page"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if page.BEGIN in readme:
        assert readme == page.with_table(readme, page.read()), "run python -m compare.page"


def test_every_question_was_asked_of_us_and_of_a_peer() -> None:
    """
    With day and version; a question nobody answered would be no comparison.
    """
    from compare.questions import questions

    kept = _kept()["answers"]

    assert set(kept) == set(questions())
    for name, answers in kept.items():
        assert "seen" in answers["Onceward"], name
        assert sum("seen" in answer for answer in answers.values()) >= 2, name
        assert all(answer["day"] and (answer["version"] or peer == "Onceward") for peer, answer in answers.items())


def test_what_is_kept_of_us_is_right() -> None:
    """
    The kept answers of ours are what we promise; `make compare` fails otherwise.
    """
    from compare.questions import questions
    from compare.results import wrong

    assert wrong(_kept()["answers"], questions()) == []


def test_every_sentence_names_its_question() -> None:
    """
    Each bullet is in the section of a question, or names one in brackets, or says whose documentation it is from.
    """
    from compare import page
    from compare.questions import questions

    known, section, found = set(questions()), None, 0
    for line in page.PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            section = None
        if (named := re.match(r"`([a-z-]+)`: ", line)) and named[1] in known:
            section = named[1]
        if not line.startswith("- "):
            continue
        found += 1
        sources = [*re.findall(r"`([a-z-]+)`", line), section]
        documented = "from the documentation of" in line or "no question: it is what SQL does" in line
        assert documented or known & set(sources), line
    assert found > len(known)


@pytest.mark.fault("compare-the-page-says-one-of-two")
def test_the_page_cannot_say_one_of_data_that_says_two() -> None:
    """
    For every kept answer that counts effects: with two or more, the sentence never says "one effect".
    """
    seen = 0
    for question, peer, data in _answers():
        counts = [name for name in COUNTS if name in data]
        for effects in (2, 3, 7) if counts else ():
            changed = {**data, **dict.fromkeys(counts, effects)}
            if "most" in changed:
                changed["keys"] = 1
            assert not ONE.search(question.say(changed)), (question.name, peer)
            assert not ONE.search(question.cell(changed)), (question.name, peer)
            seen += 1
    assert seen > 50


@pytest.mark.fault("compare-a-sentence-is-constant")
def test_another_answer_is_another_sentence() -> None:
    """
    When the number of effects changes, so does the sentence, of whomever it is; and so the page.
    """
    for question, peer, data in _answers():
        if "effects" in data and question.name not in ("other-arguments", "empty-results"):
            assert question.say({**data, "effects": data["effects"] + 1}) != question.say(data), (question.name, peer)
    kept = _kept()
    before = _made(kept)
    kept["answers"]["raises"]["Onceward"]["seen"]["effects"] += 1
    assert _made(kept) != before


@pytest.mark.fault("compare-a-better-peer-is-not-told")
def test_a_peer_that_is_better_is_told_first() -> None:
    """
    Above everything else; and it is told because of the data: if ours were as good, the sentence would be gone.
    """
    kept = _kept()
    text = _made(kept)
    first = text.split("## When to take something else")[0]
    assert "## Where others are better" in first
    for peer, question in (("dbos", "resumes"), ("idemkit", "killed-before"), ("agent-once", "install")):
        told = [line.split("`): ")[1] for line in first.splitlines() if f"(`{question}`): " in line]
        assert re.search(rf"\b{peer}\b", " ".join(told)), question

    for question in kept["answers"].values():
        for peer in question:
            question[peer]["seen"] = question["Onceward"]["seen"]

    assert "None of the questions below was answered better." in _made(kept)


def test_a_choice_is_offered_only_while_it_is_so() -> None:
    """
    "Take DBOS or Temporal" rests on what they answered.
    """
    kept = _kept()
    assert "a workflow that continues by itself" in _made(kept)
    for peer in ("dbos", "temporalio"):
        kept["answers"]["resumes"][peer]["seen"]["alone"] = False

    assert "a workflow that continues by itself" not in _made(kept)


def test_the_table_goes_between_its_markers_and_nowhere_else() -> None:
    """
    Another page's words stay; a page without markers is refused.
    """
    from compare import page

    kept = _kept()
    text = f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n"

    made = page.with_table(text, kept)

    assert made == f"before\n{page.BEGIN}\n{page.table(kept)}\n{page.END}\nafter\n"
    assert page.with_table(made, kept) == made
    assert "exactly" not in page.table(kept)  # The README does not say that word.
    with pytest.raises(ValueError, match="no place for the table"):
        page.with_table("no markers", kept)


def test_what_was_not_asked_now_stays(tmp_path: Path) -> None:
    """
    A run of one question replaces its own answers only.
    """
    from compare import results

    path = tmp_path / "results.json"
    results.save({"raises": {"Onceward": {"day": "1"}, "dbos": {"day": "1"}}, "cpu": {"dbos": {"day": "1"}}}, path)
    results.save({"raises": {"dbos": {"day": "2"}}}, path)

    assert results.read(path)["answers"] == {
        "raises": {"Onceward": {"day": "1"}, "dbos": {"day": "2"}},
        "cpu": {"dbos": {"day": "1"}},
    }
