"""A dashboard in a process of its own, and somebody who looks at it over a socket, as a browser would."""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

SECONDS_MAX = 60
PAGES = ("/", "/records", "/doubt", "/letters", "/plans", "/runs", "/outbox", "/inbox", "/decisions")


class Page:
    """A response."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.all_headers = headers
        self.headers = {name.lower(): value for name, value in headers}
        self.text = body.decode()

    @property
    def said(self) -> str:
        """What a reader sees: without tags, on one line."""
        return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.text)))

    def links(self, pattern: str) -> list[str]:
        """Where its links lead."""
        return [html.unescape(one) for one in re.findall(rf'href="({pattern})"', self.text)]

    @property
    def csrf(self) -> str:
        """The token of its session."""
        found = re.search(r'name="csrf" value="([0-9a-f]+)"', self.text)
        assert found is not None, "there is no form on this page"
        return found.group(1)

    def value(self, name: str) -> str:
        """The value of a hidden field."""
        found = re.search(rf'name="{re.escape(name)}" value="([^"]*)"', self.text)
        assert found is not None, f"there is no field {name} on this page"
        return html.unescape(found.group(1))


class Visitor:
    """A browser, without script."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.cookie: str | None = None
        self.csrf = ""

    def get(self, path: str, **headers: str) -> Page:
        """Open a page."""
        return self._request("GET", path, None, headers)

    def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> Page:
        """Send a form, from a page of the dashboard unless headers say otherwise."""
        body = urlencode({"csrf": self.csrf, **(form or {})})
        sent = {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded", **headers}
        return self._request("POST", path, body, sent)

    def follow(self, page: Page) -> Page:
        """Go where a response leads."""
        assert page.status == 303, (page.status, page.said[:500])
        return self.get(page.headers["location"])

    def log_in(self, path: str, form: dict[str, str] | None = None) -> Page:
        """Log in, and remember the session's token."""
        entered = self.get(path) if form is None else self.post(path, form)
        start = self.follow(entered)
        start = self.follow(start) if start.status == 303 else start
        self.csrf = start.csrf
        return start

    def _request(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Page:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=SECONDS_MAX)
        try:
            cookie = {} if self.cookie is None else {"Cookie": self.cookie}
            connection.request(method, path, body, {**cookie, **headers})
            response = connection.getresponse()
            page = Page(response.status, response.getheaders(), response.read())
        finally:
            connection.close()
        for name, value in page.all_headers:
            if name.lower() == "set-cookie":
                self.cookie = value.partition(";")[0]
        return page


class Command:
    """`onceward dashboard` in a process of its own."""

    def __init__(self, url: str, *flags: str, folder: Path) -> None:
        self.url, self._flags, self._folder = url, flags, folder
        command = [sys.executable, "-m", "onceward", "dashboard", "--store", url, "--port", "0", "--json", *flags]
        with (folder / "dashboard.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**os.environ, "ONCEWARD_ACTOR": "alice"},
                text=True,
            )
        self.log = folder / "dashboard.log"
        self.address, self.login = "", ""
        self.read_login()

    def read_login(self) -> str:
        """The login that was announced next."""
        assert self.process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "}\n":
            lines.append(self.process.stdout.readline())
            assert lines[-1], self.log.read_text()
        told = json.loads("".join(lines))
        self.address, self.login = told["address"], told["login"]
        return self.login

    def visitor(self) -> Visitor:
        """Somebody who has logged in."""
        made = Visitor(self.address)
        made.log_in(self.login.removeprefix(self.address))
        self.read_login()
        return made

    def again(self) -> Command:
        """End it, and begin it again: it remembers nothing of what it has seen."""
        self.stop()
        self.__init__(self.url, *self._flags, folder=self._folder)  # type: ignore[misc]
        return self

    def stop(self) -> None:
        """End it."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=SECONDS_MAX)


Open = Callable[..., Command]
"""Opens a dashboard over the test's own copy of the scene, with these flags."""
