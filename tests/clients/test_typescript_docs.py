"""
What is shown in TypeScript, works: every fenced `ts` block of the docs and of the client's own page, and its example.

All are compiled, with every check that the client itself is compiled with. Then each is run against a real service, and
run again: what a first run left behind is what a reader's second run finds. The words after the language:

    ts continued     goes on from the block before it: same script
    ts no-run        is compiled and not run; its first line says why, as `// not run: ...`

A comment beside `console.log(...)` is what that line prints; `; run it again: ...` is what it prints the second time.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from house.doc_pages import PAGES, ROOT, blocks
from servers.node import CLIENT, built_client, compile_typescript, why_no_node
from service.service_support import Served

SECONDS_MAX = 120
SHOWN_ADDRESS = "http://127.0.0.1:8600"
ESCAPES = frozenset({"typescript", "tsx", "mts", "cts"})
EXAMPLE = CLIENT / "examples" / "notes.ts"
AGAIN = "; run it again: "
PRINTS = re.compile(r"console\.log\(.*\); // (.*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(why_no_node() is not None, reason=str(why_no_node()))


class Script(NamedTuple):
    """Blocks that are one program."""

    name: str
    text: str
    is_run: bool


def scripts_of(page: Path) -> Iterator[Script]:
    """The programs of a page, each with the blocks that continue it; lines are the page's."""
    made: list[Script] = []
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language != "ts":
            continue
        if block.continues:
            text = made[-1].text
            made[-1] = made[-1]._replace(text=text + "\n" * (block.line - 1 - text.count("\n")) + block.body)
        else:
            name = re.sub(r"\W", "_", f"{page.relative_to(ROOT).with_suffix('')}_{block.line}")
            made.append(Script(name, "\n" * (block.line - 1) + block.body, "no-run" not in block.words))
    yield from made


SCRIPTS = [script for page in (*PAGES, CLIENT / "README.md") for script in scripts_of(page)]
SCRIPTS.append(Script("example_notes", EXAMPLE.read_text(encoding="utf-8"), True))
RUN = [script for script in SCRIPTS if script.is_run]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project of somebody else's that has all of them, and what the compiler says."""
    client, folder = built_client(), tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "onceward").symlink_to(client)
    (folder / "package.json").write_text('{"type": "module"}')
    options = {"rootDir": ".", "outDir": "out", "declaration": False, "noUnusedLocals": False}
    project = {"extends": str(client / "tsconfig.json"), "compilerOptions": options, "include": ["*.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    for script in SCRIPTS:
        (folder / f"{script.name}.ts").write_text(script.text, encoding="utf-8")
    return folder, compile_typescript(folder / "tsconfig.json")


def run(script: Path, served: Served) -> list[str]:
    """What a program prints, line by line."""
    script.write_text(script.read_text(encoding="utf-8").replace(SHOWN_ADDRESS, served.address), encoding="utf-8")
    ran = subprocess.run(
        ["node", str(script)],
        env={**os.environ, "ONCEWARD_TOKEN": served.token},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


@pytest.mark.slow
def test_every_block_compiles(compiled: tuple[Path, str]) -> None:
    """
    Strictly, as the client itself does.
    """
    assert compiled[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("script", RUN, ids=lambda script: script.name)
def test_every_block_runs_and_runs_again(script: Script, compiled: tuple[Path, str], served: Served) -> None:
    """
    It prints what is shown beside it.
    """
    file = compiled[0] / "out" / f"{script.name}.js"
    shown = [told.partition(AGAIN) for told in PRINTS.findall(script.text)]
    first, second = run(file, served), run(file, served)

    if script.name == "example_notes":
        kept = "notes=2 balance=-0.1"
        assert (first, second) == ([f"3 calls, 3 done now; {kept}"], [f"3 calls, 0 done now; {kept}"])
    else:
        assert first == [one for one, _, _ in shown]
        assert second == [again or one for one, _, again in shown]


def test_no_block_escapes() -> None:
    """
    Another name for the language would be shown and never run; a block that is not run says why.
    """
    found = [
        (page.name, block.line, block)
        for page in (*PAGES, CLIENT / "README.md")
        for block in blocks(page.read_text(encoding="utf-8"))
    ]

    assert [(page, line) for page, line, block in found if block.language in ESCAPES] == []
    left_out = [block for _, _, block in found if {"ts", "no-run"} <= {*block.words}]
    assert [block.body for block in left_out if not block.body.startswith("// not run: ")] == []
    assert len(RUN) >= 5
