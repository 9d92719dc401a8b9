"""`onceward completion`: made from the command table, tried in the real shells that are here."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onceward.cli import build_parser
from onceward.cli.command_table import GROUPS
from onceward.cli.completion import SCRIPTS, bash_script, words_of

WANTED = [
    ("onceward re", {"records", "relay"}),
    ("onceward records ", {"list", "show", "release", "reconcile", "decide", "purge"}),
    ("onceward records list --in", {"--in-doubt"}),
    ("onceward records list --state in", {"in_doubt"}),
    ("onceward records list --color a", {"auto", "always"}),
    ("onceward completion ", {"bash", "zsh", "fish"}),
    ("onceward --store sqlite:///a.db sta", {"status"}),
    ("onceward nothing ", None),
]


def test_every_command_and_option_is_in_every_script() -> None:
    """
    From the table that parses them: a new one needs nothing here.
    """
    words = words_of(build_parser())

    assert {one.after for one in words} >= set(GROUPS)
    for make in SCRIPTS.values():
        script = make(words)
        for one in words:
            assert all(option.name[2:] in script for option in one.options)
            assert all(name in script for name, _ in one.commands)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(("line", "expected"), WANTED)
def test_bash_completes(line: str, expected: set[str] | None, tmp_path: Path) -> None:
    """
    In a real bash, with the function that it would call.
    """
    (tmp_path / "script").write_text(bash_script(words_of(build_parser())))
    typed = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
    ask = (
        f"source {tmp_path / 'script'}; COMP_WORDS=({shlex.join(typed)}); COMP_CWORD={len(typed) - 1}; _onceward; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )

    ran = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, timeout=60, check=True)

    found = set(ran.stdout.split())
    assert ran.stderr == ""
    assert found == expected if expected is not None else "records" in found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_reads_its_script(shell: str, tmp_path: Path, run: Any) -> None:
    """
    Without a complaint about its grammar.
    """
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "script").write_text(run("completion", shell).out)

    ran = subprocess.run(
        [shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, timeout=60, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")


def test_an_unknown_shell_is_refused(run: Any) -> None:
    """
    With those that there are.
    """
    ran = run("completion", "tcsh")

    assert ran.code == 2
    assert "bash" in ran.err
