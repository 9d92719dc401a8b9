"""The errors page shows each error as it is seen: every text there is provoked here, and compared."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from doc_pages import ROOT
from error_provocations import SCENES, seen

from onceward import errors

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (?P<name>\w+) \(`\w+`\)\n\n```text\n(?P<shown>.*?)\n```\n\n- \*\*Cause:\*\* ", re.M | re.S)
SHOWN = {found["name"]: found["shown"] for found in SECTION.finditer(PAGE)}
ERRORS = [
    found
    for name in errors.__all__
    if isinstance(found := getattr(errors, name), type) and issubclass(found, errors.OncewardError)
]


def looks_like(shown: str, text: str) -> bool:
    """Whether a text is the one shown: `...` is anything, and lines may be broken anywhere."""
    return doctest.OutputChecker().check_output(
        " ".join(shown.split()) + "\n", " ".join(text.split()) + "\n", doctest.ELLIPSIS
    )


def test_every_error_is_shown_and_provoked() -> None:
    """
    Each public error has a scene that provokes it, and its text on the page, between heading and cause.
    """
    assert [error.__name__ for error in ERRORS if error not in SCENES] == []
    assert [error.__name__ for error in ERRORS if error.__name__ not in SHOWN] == []


@pytest.mark.fault("an-error-says-nobody-knows-what")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_the_page_shows_what_is_seen(error: type[errors.OncewardError], tmp_path: Path) -> None:
    """
    Word for word.
    """
    real = seen(error, tmp_path)

    assert looks_like(SHOWN[error.__name__], real), f"shown:\n{SHOWN[error.__name__]}\n\nseen:\n{real}"


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_little_is_left_open(shown: str) -> None:
    """
    Dots stand for what differs from run to run, and not for the message.
    """
    assert len(shown.replace("...", "").split()) >= 5
    assert shown.count("...") <= 2


def test_another_text_is_noticed() -> None:
    """
    The comparison can fail.
    """
    assert looks_like("onceward.KeyInvalid: the key\nhas ...", "onceward.KeyInvalid: the key has spaces (3)")
    assert not looks_like("onceward.KeyInvalid: the key has blanks", "onceward.KeyInvalid: the key has spaces")
