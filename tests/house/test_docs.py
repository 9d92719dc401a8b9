"""
What the documentation shows, works.

Every fenced `python` block in the README and under docs/ is run as a script, in an empty folder, with the blocks that
it continues and those that continue it, and then run again in the same folder: what a first run left behind is what a
reader's second run finds. In a traceback, line numbers are those of the page. Every line `$ onceward ...` in a fenced
`console` block is run too, and the output shown below it, if any, must be what is printed (`...` stands for anything).
The words after the language:

    python continued     goes on from the block before it: same script, same folder
    console continued    runs in the folder that the blocks before it left behind
    python no-run        is not run; its first line says why, as `# not run: ...`

A command that is meant to fail says how: `$ onceward key lint x  # exit 1`.
"""

from __future__ import annotations

import argparse
import atexit
import doctest
import json
import os
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from doc_pages import PAGES, ROOT, Block, blocks, chain, chains, loose_fences, scripts

import onceward

SECONDS_MAX = 60
TypeOne = Callable[[str, Path], tuple[int, str]]
"""Types a command in a folder: its exit code, and what it printed."""


class Command(NamedTuple):
    """One command of a console block: what to type, the exit code and the output to expect (none: any)."""

    typed: str
    exit_code: int
    output: str | None


def commands(body: str) -> list[Command]:
    """The commands of ours in a console block; other commands are the reader's own and are not run."""
    found = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed, _, output = part.partition("\n")
        while typed.endswith("\\"):
            more, _, output = output.partition("\n")
            typed = typed.removesuffix("\\") + more.removeprefix("> ")
        if typed.split()[:1] == ["onceward"]:
            code = re.search(r"# exit (\d+)$", typed)
            found.append(Command(typed, int(code[1]) if code else 0, output.rstrip() or None))
    return found


def looks_like(shown: str, printed: str) -> bool:
    """Whether an output is the one shown, where `...` is anything, and a column of a table is as wide as it likes."""

    def tidy(text: str) -> str:
        return "".join(re.sub(" {2,}", "  ", line.rstrip()) + "\n" for line in text.rstrip().splitlines())

    return doctest.OutputChecker().check_output(tidy(shown), tidy(printed), doctest.ELLIPSIS)


def environment() -> dict[str, str]:
    """The caller's, with this project's command first, and nothing that would colour or widen what is printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ONCEWARD_"))}
    return kept | {"PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}


def run_python(script: str, folder: Path, name: str) -> list[str]:
    """What went wrong in a script, if anything; warnings are errors."""
    file = folder / f"{name}.py"
    file.write_text(script, encoding="utf-8")
    code, told = in_the_nursery(folder, file=str(file))
    return [f"exit {code}\n{told}"] if code else []


def in_the_nursery(folder: Path, **what: Any) -> tuple[int, str]:
    """How a script or a command ended, and what it printed."""
    output = folder / "output-of-this"
    code = nursery().ask({**what, "folder": str(folder), "environment": environment(), "output": str(output)})
    told = output.read_text(encoding="utf-8", errors="replace")
    output.unlink()
    return code, told


class Nursery:
    """The warm process that scripts are forked from."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "error", str(Path(__file__).with_name("page_nursery.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )

    def ask(self, order: dict[str, Any]) -> int:
        """Run a script; its exit code. Too long is an error."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], SECONDS_MAX)[0]:
            process.kill()
            nursery.cache_clear()
            raise TimeoutError(f"{order.get('file') or order['typed']} takes longer than {SECONDS_MAX} s")
        return int(process.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(30)


@cache
def nursery() -> Nursery:
    """One for each worker of the tests."""
    made = Nursery()
    atexit.register(made.close)
    return made


def type_in_a_shell(typed: str, folder: Path) -> tuple[int, str]:
    """How a command ended, and what it printed."""
    done = subprocess.run(
        typed,
        shell=True,
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.returncode, done.stdout


def type_command(typed: str, folder: Path) -> tuple[int, str]:
    """The same; what needs no shell is run by a process that has imported the package."""
    if set("|&;<>$`*~") & set(typed):
        return type_in_a_shell(typed, folder)
    return in_the_nursery(folder, typed=shlex.split(typed, comments=True)[1:])


def run_console(body: str, folder: Path, type_one: TypeOne = type_command) -> list[str]:
    """What went wrong in a console block, command by command."""
    wrong = []
    for command in commands(body):
        code, printed = type_one(command.typed, folder)
        if code != command.exit_code:
            wrong.append(f"$ {command.typed}\nexit {code}\n{printed}")
        elif command.output is not None and not looks_like(command.output, printed):
            wrong.append(f"$ {command.typed}\nprinted:\n{printed}\nshown:\n{command.output}")
    return wrong


def run_block(all_blocks: list[Block], block: Block, folder: Path) -> list[str]:
    """Run a block, and before it those that it continues, in one folder; then run the scripts among them again."""
    wrong: list[str] = []
    linked = list(enumerate(scripts(chain(all_blocks, block))))
    for number, (language, text) in linked:
        wrong += run_python(text, folder, f"script_{number}") if language == "python" else run_console(text, folder)
    for number, (language, text) in linked:
        if language == "python" and not wrong:
            told = run_python(text, folder, f"script_{number}")
            wrong += [f"it works once, and fails when it is run again in the same folder: {one}" for one in told]
    return wrong


def cli_commands(parser: argparse.ArgumentParser) -> list[str]:
    """Every command that can be typed: the leaves of the tree of parsers."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return [parser.prog]
    # A command with two names is one parser, which knows its first name.
    different = {id(child): child for action in below for child in action.choices.values()}
    return [command for child in different.values() for command in cli_commands(child)]


def unmentioned(names: list[str], text: str) -> list[str]:
    """The names that a text does not contain as words of their own."""
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]


def all_text() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def ends(all_blocks: list[Block]) -> list[Block]:
    """The blocks that no other continues: who runs these, with what they continue, runs all."""
    return [linked[-1] for linked in chains(all_blocks)]


CASES = [
    pytest.param(page, block, id=f"{page.relative_to(ROOT).as_posix()}:{block.line}")
    for page in PAGES
    for block in ends(blocks(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("page", "block"), CASES)
def test_what_is_shown_works(page: Path, block: Block, tmp_path: Path) -> None:
    """
    Examples run as they stand; the few that cannot say why.
    """
    if block.is_run:
        wrong = run_block(blocks(page.read_text(encoding="utf-8")), block, tmp_path)
    else:
        wrong = [] if block.body.startswith("# not run: ") else ["say why in the first line: `# not run: ...`"]

    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_example_escapes(page: Path) -> None:
    """
    Every fence is closed and speaks a language that this file knows to run, or plainly something else.
    """
    assert loose_fences(page.read_text(encoding="utf-8")) == []


def test_every_public_name_is_documented() -> None:
    """
    Whatever can be imported from the package is mentioned in the documentation.
    """
    assert unmentioned([name for name in onceward.__all__ if not name.startswith("_")], all_text()) == []


def test_every_command_is_documented() -> None:
    """
    Whatever can be typed after `onceward` is mentioned in the documentation.
    """
    from onceward.cli import build_parser

    assert unmentioned(cli_commands(build_parser()), all_text()) == []


class TestTheChecksThemselves:
    """A broken example is noticed, and a sound one is not."""

    PAGE = """
# Planted

```python
value = 1
open("left-behind.txt", "w").close()
```

Prose, and in a list:

- item

  ```python continued
  assert value == 1
  ```

```console continued
$ ls left-behind.txt
```

```text
not run
```

```python
value
```
"""

    def test_blocks_are_found_with_their_words_and_lines(self) -> None:
        """
        Also in a list, and with their indentation taken off.
        """
        found = blocks(self.PAGE)

        assert [(block.words, block.line) for block in found] == [
            (("python",), 5),
            (("python", "continued"), 14),
            (("console", "continued"), 18),
            (("text",), 22),
            (("python",), 26),
        ]
        assert found[1].body == "assert value == 1\n"

    def test_an_escaping_example_is_noticed(self) -> None:
        """
        An unclosed fence, or a language by another name; a sound page has neither.
        """
        assert loose_fences(self.PAGE) == []
        assert loose_fences("prose\n```python\nvalue\n") == ["line 2: not closed"]
        assert loose_fences("```py\n1\n```\n```bash\nls\n```\n") == ["line 1: py", "line 4: bash"]

    def test_a_block_that_continues_brings_the_ones_before_it(self) -> None:
        """
        Neighbouring python blocks are one script with the page's own line numbers; a console block ends it.
        """
        first, second, third, _, last = blocks(self.PAGE)
        all_blocks = blocks(self.PAGE)

        assert [first, second, third] == chain(all_blocks, third)
        assert [last] == chain(all_blocks, last)
        (language, script), (other, _) = scripts([first, second, third])
        assert (language, other) == ("python", "console")
        assert [script.splitlines()[4], script.splitlines()[13]] == ["value = 1", "assert value == 1"]

    def test_who_runs_the_ends_runs_every_block(self) -> None:
        """
        Of blocks that continue each other, the last; on every page, none is left out.
        """
        missed = [
            (page.name, block.line)
            for page in PAGES
            for found in [blocks(page.read_text(encoding="utf-8"))]
            for covered in [[one for end in ends(found) for one in (chain(found, end) if end.is_run else [end])]]
            for block in found
            if block.language in ("python", "console") and covered.count(block) != found.count(block)
        ]

        assert [block.line for block in ends(blocks(self.PAGE))] == [18, 26]
        assert missed == []

    def test_nothing_to_continue_is_an_error(self) -> None:
        """
        The first block of a page cannot continue.
        """
        alone = blocks("```python continued\n1\n```\n")

        with pytest.raises(ValueError, match="line 2: nothing to continue"):
            chain(alone, alone[0])

    @pytest.mark.fault("a-script-is-run-once")
    def test_a_script_that_works_once_only_is_noticed(self, tmp_path: Path) -> None:
        """
        It leaves a file behind, and cannot bear to find it.
        """
        alone = blocks("```python\nopen('left-behind.txt', 'x').close()\n```\n")
        told = "".join(run_block(alone, alone[0], tmp_path))

        assert told.startswith("it works once, and fails when it is run again in the same folder")
        assert "FileExistsError" in told

    def test_a_broken_script_is_noticed_with_its_line_on_the_page(self, tmp_path: Path) -> None:
        """
        The last planted block uses a name that it does not define; the first two are sound together.
        """
        all_blocks = blocks(self.PAGE)

        wrong = run_block(all_blocks, all_blocks[-1], tmp_path)

        assert len(wrong) == 1
        assert "line 26" in wrong[0]
        assert "NameError" in wrong[0]
        assert run_block(all_blocks, all_blocks[1], tmp_path) == []

    def test_a_warning_is_noticed(self, tmp_path: Path) -> None:
        """
        What warns in an example would warn its reader.
        """
        all_blocks = blocks("```python\nimport warnings\nwarnings.warn('old')\n```\n")

        assert len(run_block(all_blocks, all_blocks[0], tmp_path)) == 1

    def test_commands_are_read_with_their_code_and_output(self) -> None:
        """
        Only ours are run; a long one may go over several lines; no output shown means that any will do.
        """
        body = "$ pip install x\nnoise\n$ onceward a  # exit 1\nfirst\n...\n\n$ onceward b \\\n>   --c\n$ oncewards d\n"

        assert [
            Command("onceward a  # exit 1", 1, "first\n..."),
            Command("onceward b   --c", 0, None),
        ] == commands(body)

    def test_a_wrong_code_or_output_is_noticed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        With a stand-in for the command that prints its arguments and exits with the code it is told.
        """
        stand_in = tmp_path / "bin" / "onceward"
        stand_in.parent.mkdir()
        stand_in.write_text('#!/bin/sh\necho "said $1"\nexit $2\n')
        stand_in.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(stand_in.parent / "python"))
        sound = "$ onceward hello 0\nsaid h...\n$ onceward hello 3 # exit 3\n"

        assert run_console(sound, tmp_path, type_in_a_shell) == []
        assert len(run_console("$ onceward hello 0\nsaid goodbye\n", tmp_path, type_in_a_shell)) == 1
        assert len(run_console("$ onceward hello 3\n", tmp_path, type_in_a_shell)) == 1
        assert len(run_console("$ onceward hello 0  # exit 3\n", tmp_path, type_in_a_shell)) == 1

    def test_a_wrong_code_or_output_is_noticed_without_a_shell(self, tmp_path: Path) -> None:
        """
        Of the command itself, as most are run.
        """
        assert run_console("$ onceward --version\nonceward ...\n$ onceward nonsense  # exit 2\n", tmp_path) == []
        assert len(run_console("$ onceward --version\nsomething else\n", tmp_path)) == 1
        assert len(run_console("$ onceward nonsense\n", tmp_path)) == 1
        assert len(run_console("$ onceward --version  # exit 3\n", tmp_path)) == 1

    @pytest.mark.parametrize(
        ("shown", "printed", "same"),
        [
            ("a\n...\nz", "a\nb\nc\nz\n", True),
            ("took ... s", "took 3.5 s  \n", True),
            ("...", "anything\nat all\n", True),
            ("HOLDER  FAILURE\nvm:5  ...", "HOLDER    FAILURE\nvm:50000  none\n", False),
            ("HOLDER  FAILURE\n...  none", "HOLDER    FAILURE\nvm:50000  none\n", True),
            ("a b", "a  b\n", False),
            ("a", "b\n", False),
            ("a\n...\nz", "a\nb\n", False),
            ("a", "a\nmore\n", False),
        ],
    )
    def test_dots_stand_for_anything_and_nothing_else_does(self, shown: str, printed: str, same: bool) -> None:
        """
        As in doctest.
        """
        assert same is looks_like(shown, printed)

    def test_every_leaf_of_the_parsers_is_a_command(self) -> None:
        """
        Groups are not commands, and an alias is not another one.
        """
        parser = argparse.ArgumentParser(prog="onceward")
        top = parser.add_subparsers()
        top.add_parser("serve", aliases=["run"])
        records = top.add_parser("records").add_subparsers()
        records.add_parser("list").add_argument("--state")
        records.add_parser("show")

        assert cli_commands(parser) == ["onceward serve", "onceward records list", "onceward records show"]

    def test_a_name_is_mentioned_only_as_a_word(self) -> None:
        """
        `Gate` is not mentioned by `AsyncGate`, nor `onceward key` by `onceward keys`.
        """
        assert unmentioned(
            ["Gate", "AsyncGate", "onceward key"], "An `AsyncGate`; onceward keys; onceward key-lint"
        ) == ["Gate", "onceward key"]
