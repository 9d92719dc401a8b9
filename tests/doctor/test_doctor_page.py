"""
The page to hand round: whole, harmless, and readable in a real browser.
"""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from onceward.doctor.box import BoxAnswer, BoxState, CodePlace
from onceward.doctor.examination import BOXES, Examined
from onceward.doctor.html_page import as_page
from onceward.doctor.key_sentences import KeySentence
from servers.chromium import browser

HOSTILE = '</span><script>alert(1)</script><img src="https://example.com/x.png">\u202e'


def page(words: str = "evidence") -> str:
    """A page with a box of every state."""
    states = [*BoxState] * len(BOXES)
    examined = [
        Examined(box, BoxAnswer(state, words, (CodePlace(f"{words}.py", 3),)))
        for box, state in zip(BOXES, states, strict=False)
    ]
    return as_page(examined, [KeySentence("charge", words, f"charge: {words}")], project=words, read=words)


class Tags(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.fault("doctor-page-believes-the-project")
def test_the_page_loads_nothing_and_runs_nothing_whatever_a_project_is_called() -> None:
    """
    Names of files and statements are others' texts.
    """
    found = Tags(page(HOSTILE))

    assert not found.names & {"script", "img", "link", "iframe", "object"}
    assert not found.attributes & {"src", "href", "onclick", "onerror"}
    assert "\u202e" not in page(HOSTILE)


def test_every_box_is_on_it_with_its_state_and_its_places() -> None:
    """
    And the keys below, one sentence each.
    """
    text = page()

    assert all(f"<strong>{box.sentence}</strong>" in text for box in BOXES)
    assert text.count('class="state ') == len(BOXES)
    assert "charge: evidence" in text


@pytest.mark.slow
def test_a_browser_shows_it_light_dark_narrow_and_on_paper(tmp_path: Path) -> None:
    """
    Nothing is wider than the window, and the colours follow the reader's.
    """
    file = tmp_path / "report.html"
    file.write_text(page("a/very/long/path/" * 12))
    seen: dict[str, str] = {}
    with browser() as chromium:
        for scheme, width in (("light", 1000), ("dark", 380)):
            chromium.look(width, dark=scheme == "dark")
            chromium.open(file.as_uri())
            seen[scheme] = chromium.run("getComputedStyle(document.body).backgroundColor")
            assert chromium.run("document.documentElement.scrollWidth <= window.innerWidth")
        chromium.page.emulate_media(media="print")
        hidden = chromium.run(
            "[...document.querySelectorAll('details')].filter(one => getComputedStyle(one).display === 'none').length"
        )
        kept = chromium.run("document.querySelectorAll('details[open]').length")

    assert seen == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}
    assert hidden + kept == len(BOXES)
    assert kept > 0
