"""The words for models: each refusal has its own, and none invites to make the call again."""

from __future__ import annotations

import re

import pytest

from onceward import errors
from onceward.agents import Tool
from onceward.agents.model_text import _TEXTS, failure_text, not_run_text, refusal_text, timed_out_text
from onceward.errors import OncewardError

INVITATIONS = re.compile(
    r"\b(?:try|call|send|run|do|make|invoke|ask) (?:it |this |that )?(?:again|anew|once more|later)\b"
    r"|\bretry\b|\bre-?try\b|\brepeat\b|\bplease\b|\bagain\b|\bonce more\b",
    re.IGNORECASE,
)


def _error(code: str) -> OncewardError:
    error = OncewardError("why")
    error.code = code
    return error


TEXTS = {
    **{code: refusal_text("charge", Tool(check="find_charge"), _error(code)) for code in _TEXTS},
    "failed, in doubt": failure_text("charge", Tool(), TimeoutError("late"), in_doubt=True),
    "failed": failure_text("charge", Tool(), ValueError("no such order"), in_doubt=False),
    "failed, keyed": failure_text("charge", Tool("keyed"), TimeoutError("late"), in_doubt=False),
    "timed out": timed_out_text("charge", Tool(), TimeoutError("late")),
    "cannot be made": not_run_text("charge", "there is no such tool"),
}


@pytest.mark.fault("agents-text-invites")
@pytest.mark.parametrize("code", TEXTS)
def test_no_text_invites_to_repeat(code: str) -> None:
    """A model does what it reads."""
    assert INVITATIONS.search(TEXTS[code] or "") is None


@pytest.mark.parametrize("code", TEXTS)
def test_every_text_names_the_tool_and_says_what_was_done(code: str) -> None:
    """It is data that a model can act on."""
    text = TEXTS[code] or ""

    assert "'charge'" in text
    assert re.search(r"happened|not run|not done|was done|had no effect|is being done|Nothing was done", text)


@pytest.mark.parametrize("code", ["in_doubt", "store_forgot", "ownership_lost", "failed, in doubt"])
def test_doubt_says_where_to_look(code: str) -> None:
    """With the tool that was named for it, or by other means."""
    text = TEXTS[code] or ""

    assert "Check with find_charge" in text or "Check by other means" in text


def test_every_code_is_one_of_an_error() -> None:
    """A text for a code that nothing raises would be a text that nobody reads."""
    classes = [found for found in vars(errors).values() if isinstance(found, type)]
    known = {found.code for found in classes if issubclass(found, OncewardError)}

    assert set(_TEXTS) <= known


def test_what_is_for_the_programmer_has_no_text() -> None:
    """A model that is told about a wrong setting would go on as if it were done."""
    for code in (
        "configuration",
        "scope_missing",
        "key_invalid",
        "key_missing",
        "schema_mismatch",
        "store_unavailable",
    ):
        assert code not in _TEXTS


def test_what_a_tool_says_is_cut_and_kept_on_one_line() -> None:
    """An error page of a megabyte is no text for a model."""
    text = failure_text("charge", Tool(), ValueError("x\n" * 10_000), in_doubt=False)

    assert len(text) < 600
    assert "\n" not in text
