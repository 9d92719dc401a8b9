"""
The built site in a real browser: `make test-docs` builds it and runs this. Without a site or a browser it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from site_tools import ROOT, outside

from servers.chromium import Chromium, browser

SITE = ROOT / "build" / "site"
PICTURES = ROOT / "build" / "screenshots"
PAGES = (
    "index.html",
    "how-to/choose-a-guarantee.html",
    "reference/python/onceward.gate.html",
    "explanation/states.html",
)
WIDTHS = {"wide": 1400, "phone": 390}

SEARCH = """
{
  const found = () => [...document.querySelectorAll("*")].map((one) => one.shadowRoot).find(Boolean);
  const patient = async (look) => {
    for (let turn = 0; turn < 600; turn++) {
      const seen = look();
      if (seen) return seen;
      await new Promise((done) => setTimeout(done, 50));
    }
    return null;
  };
  await patient(() => found() && found().querySelector("input"));
  document.querySelector(".md-search__button").click();
  const input = found().querySelector("input");
  input.focus();
  input.value = "WORDS";
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await patient(() => found().querySelector("ol a"));
  return [...found().querySelectorAll("ol a")].map((one) => new URL(one.href).pathname);
}
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="there is no build/site; make test-docs builds it"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests of this file."""
    with browser() as opened:
        yield opened


def search(chromium: Chromium, words: str) -> list[str]:
    """What the site's search finds, best first, as paths below the site."""
    found: list[str] = chromium.run(SEARCH.replace("WORDS", words))
    return [path.rpartition("/build/site/")[2] for path in found]


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("dead letters", "how-to/handle-dead-letters.html"),
        ("settle inside", "how-to/settle-inside-your-transaction.html"),
        ("insert_once", "reference/python/onceward.adapters.html"),
    ],
)
def test_the_search_works_from_a_folder_of_files(chromium: Chromium, words: str, page: str) -> None:
    """
    No server, no network: the page is opened as a file, and what was looked for is among the first ten.
    """
    chromium.look(1400)
    chromium.open(f"file://{SITE}/index.html")

    assert page in search(chromium, words)[:10]


def test_a_search_that_finds_everything_finds_nothing(chromium: Chromium) -> None:
    """
    The control: a word that no page has is not found.
    """
    chromium.look(1400)
    chromium.open(f"file://{SITE}/index.html")

    assert search(chromium, "dead letters") != []
    chromium.open(f"file://{SITE}/index.html")
    assert chromium.run(SEARCH.replace("WORDS", "qqxzzy").replace("turn < 600", "turn < 40")) == []


def test_nothing_is_loaded_from_another_host(chromium: Chromium) -> None:
    """
    Neither by what the pages say, nor by what their scripts do.
    """
    assert outside.outside_loads(SITE) == []
    for page in PAGES:
        chromium.open(f"file://{SITE}/{page}")
        asked: list[str] = chromium.run("{ return performance.getEntriesByType('resource').map((one) => one.name); }")

        assert [address for address in asked if not address.startswith("file:")] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_and_follow_the_theme(chromium: Chromium, width: str, dark: bool) -> None:
    """
    On a wide screen and on a phone: nothing is cut off, every picture is there, and dark is dark.
    """
    PICTURES.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        chromium.look(WIDTHS[width], 900, dark=dark)
        chromium.open(f"file://{SITE}/{page}")
        chromium.run("{ localStorage.clear(); }")  # A reader without a choice of an earlier visit.
        chromium.open(f"file://{SITE}/{page}")
        seen: dict[str, Any] = chromium.run(
            """{
              await Promise.all([...document.images].map((one) => one.decode().catch(() => null)));
              const colour = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
              return {
                over: document.documentElement.scrollWidth - window.innerWidth,
                broken: [...document.images].filter((one) => !one.naturalWidth).map((one) => one.src),
                bright: colour.slice(0, 3).reduce((sum, one) => sum + one) / 3 > 128,
              };
            }"""
        )
        theme = "dark" if dark else "light"
        chromium.picture(PICTURES / f"docs-{Path(page).stem}-{width}-{theme}.png")

        assert seen["over"] <= 0, page
        assert seen["broken"] == [], page
        assert seen["bright"] is not dark, page
