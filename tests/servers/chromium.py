"""
A real browser for tests: Debian's Chromium without a window, driven by Playwright, in a folder of its own.

    with browser() as chromium:
        chromium.open("http://127.0.0.1:8000/")
        chromium.button("Search")                               # as a person presses it, with what follows
        chromium.run("await (await fetch('/x')).text()")
        chromium.page.get_by_label("Token").fill("...")         # Playwright's own page

It is fetched from Debian's packages when it is first needed (`chromium_package.py`; nine seconds, once). Where that
cannot be done, one that is installed will do; where there is none, the test is skipped and says why.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from servers.chromium_package import Unpacked, fetched

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

SECONDS_MAX = 60
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",  # Root has none; and all pages are our own.
)
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@functools.cache
def program() -> Unpacked | str:
    """The browser; or why there is none."""
    try:
        import playwright.sync_api  # noqa: F401 - it is only asked whether it is there
    except ImportError:
        return "NOT TESTED HERE: Playwright is not installed, which drives the browser; `make setup` installs it"
    found = fetched()
    if isinstance(found, str):
        for name in NAMES:
            if (here := shutil.which(name)) is not None:
                return Unpacked(here, {})
    return found


class Chromium:
    """A browser with one page."""

    def __init__(self, page: Page, line: CDPSession) -> None:
        self.page = page
        self._line = line

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is there."""
        self.page.goto(url, wait_until="load")

    def run(self, expression: str) -> Any:
        """What an expression of JavaScript comes to; it may await."""
        told = self._ask(
            "Runtime.evaluate", expression=f"(async () => {expression})()", awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]["exception"].get("description")
        return told["result"].get("value")

    def look(self, width: int, height: int = 800, *, dark: bool = False) -> None:
        """Be a screen of that width, with a light or a dark theme, and nothing that moves."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        mobile = width < 600
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        self.page.screenshot(path=path, full_page=True)

    def button(self, name: str) -> None:
        """Press the button with this text, and wait until the page that follows is there."""
        with self.page.expect_navigation(wait_until="load"):
            self.page.get_by_role("button", name=name, exact=True).click()

    def link(self, name: str) -> None:
        """Follow the first link with this text within the page, and wait until its page is there."""
        with self.page.expect_navigation(wait_until="load"):
            self.page.get_by_role("main").get_by_role("link", name=name).first.click()

    def fill(self, label: str, text: str) -> None:
        """Write into the field with this label."""
        self.page.get_by_label(label, exact=True).fill(text)

    @property
    def said(self) -> str:
        """What stands in the page, without its frame."""
        return self.page.get_by_role("main").inner_text()

    def press(self, key: str) -> None:
        """A key of the keyboard."""
        self.page.keyboard.press(key)

    def _ask(self, method: str, **parameters: Any) -> Any:
        return self._line.send(method, parameters)


@contextmanager
def browser() -> Iterator[Chromium]:
    """A browser, for as long as it is needed."""
    found = program()
    if isinstance(found, str):
        pytest.skip(found)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="onceward-chromium-", ignore_cleanup_errors=True) as folder:
        environment: dict[str, str | float | bool] = {**os.environ, **found.environment, "HOME": folder}
        with sync_playwright() as playwright:
            context = playwright.chromium.launch_persistent_context(
                f"{folder}/data",
                executable_path=found.program,
                args=list(FLAGS),
                env=environment,
                chromium_sandbox=False,
                timeout=SECONDS_MAX * 1_000,
            )
            try:
                context.set_default_timeout(SECONDS_MAX * 1_000)
                context.grant_permissions(["clipboard-read", "clipboard-write"])
                page = context.pages[0]
                yield Chromium(page, context.new_cdp_session(page))
            finally:
                context.close()
