"""
What stored messages say about calls, and the texts of ours that are known again in them.
"""

from __future__ import annotations

import pytest

from onceward.agents import Tool
from onceward.agents.message_history import PastMessages, arguments_of, model_content
from onceward.agents.model_text import _TEXTS, failure_text, is_text_for_model, not_run_text, timed_out_text

ERROR = ConnectionError("reset")
TOOL = Tool("blind", check="find_charge")


@pytest.mark.parametrize(
    "text",
    [
        *(text.format(tool="charge", look="Look", error=ERROR) for text in _TEXTS.values()),
        failure_text("charge", TOOL, ERROR, in_doubt=True),
        failure_text("charge", TOOL, ERROR, in_doubt=False),
        timed_out_text("charge", TOOL, ERROR),
        not_run_text("charge", "there is no tool of this name"),
    ],
)
def test_every_text_of_ours_is_known_again(text: str) -> None:
    """In a history that has nothing but texts, a refusal must not be taken for a result; nor invite to repeat."""
    assert is_text_for_model("charge", text)
    assert not is_text_for_model("notify", text)
    assert not any(word in text.lower() for word in ("try again", "retry", "please", "call it again"))


@pytest.mark.parametrize("result", ["charged", "'charge' is done", "'charge'", "", None, 5, "' failed ("])
def test_results_are_not_taken_for_texts_of_ours(result: object) -> None:
    """A tool may speak of itself."""
    assert not is_text_for_model("charge", result)


def test_equal_calls_of_one_answer_are_told_apart_and_an_unanswered_one_keeps_its_number() -> None:
    """Equal by canonical arguments; two in one answer are two; what came to no answer is the next one's."""
    past = PastMessages()
    past.called("a", "charge", {"x": 1, "y": 2})
    past.called("b", "charge", {"y": 2, "x": 1})
    past.answered("a", result=False)
    past.answered("b")
    past.called("c", "charge", {"x": 1, "y": 2})

    assert [past.number(id, "charge", {"x": 1, "y": 2}) for id in ("a", "b", "c")] == [0, 1, 0]
    assert [one.id for one in past.wanted()] == ["c"]
    assert past.number("d", "charge", {"x": 2}) == 0


def test_arguments_and_results_that_are_no_json_stay_readable() -> None:
    """Nothing is raised for what a model or a tool may produce."""
    assert arguments_of('{"a": 1}') == {"a": 1}
    assert arguments_of("") == {}
    assert arguments_of("{broken") == "{broken"
    assert model_content({"error": ERROR}) == '{"error": "reset"}'
    assert model_content([{"type": "text", "text": "x"}]) == [{"type": "text", "text": "x"}]
    assert model_content([1, 2]) == "[1, 2]"
