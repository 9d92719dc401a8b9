"""Words that must not appear, and sizes that must not be passed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINES_IN_A_FUNCTION_MAX = 70  # About a screen.

# Nobody can offer this, so nobody here says it: at-least-once delivery, one effect.
CLAIM = re.compile(r"exactly[\s_-]*once", re.IGNORECASE)

# Files that may say it, because they explain that it is not offered. The peer package of that name lives in bench/.
MAY_SAY_IT: frozenset[str] = frozenset(
    {
        "docs/explanation/compared-with-peers.md",  # Names the peer package of that name.
    }
)

# Assembled from pieces, so that this file does not contain what it forbids.
HOSTS = re.compile(
    "|".join(
        re.escape(".".join(parts))
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("pypi", "python", "org"),
            ("npmjs", "org"),
            ("npmjs", "com"),
            ("crates", "io"),
            ("rubygems", "org"),
            ("anaconda", "org"),
        )
    ),
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(rf"(?<![\w.~-])/(?:{'|'.join(('work', 'root', 'home', 'Users'))})/")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MERGE = re.compile(r"\bMERGE\s+INTO\b|\bMERGE\s+\w+\s+(?:AS\s+\w+\s+)?USING\b", re.IGNORECASE)

TEXT = {".py", ".md", ".sql", ".lua", ".toml", ".txt", ".json", ".html", ".sh", ".yml", ".yaml", ".cfg", ""}


def texts(*places: str) -> list[str]:
    """The text files in these places, as paths from the project's root."""
    found = []
    for place in places:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        found += [file for file in files if file.is_file() and file.suffix in TEXT and "__pycache__" not in file.parts]
    return [file.relative_to(ROOT).as_posix() for file in found]


SRC = texts("src")
PYTHON = [file for file in SRC if file.endswith(".py")]
SHOWN = texts("src", "docs", "examples", *sorted(path.name for path in ROOT.glob("*.md")))
ALL = sorted({*SHOWN, *texts("tools", "tests", "bench", "soak", "Makefile", "pyproject.toml")})


@cache
def read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def hits(pattern: re.Pattern[str], text: str) -> list[str]:
    """Where a pattern occurs: line and words."""
    return [f"line {text.count(chr(10), 0, hit.start()) + 1}: {hit.group()}" for hit in pattern.finditer(text)]


def hits_in(pattern: re.Pattern[str], files: list[str]) -> list[str]:
    """Where a pattern occurs in files: file, line and words."""
    return [f"{file}: {hit}" for file in files for hit in hits(pattern, read(file))]


def long_functions(source: str) -> list[str]:
    """The functions that do not fit on a screen, with their lengths."""
    return [
        f"{node.name}: {length} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > LINES_IN_A_FUNCTION_MAX
    ]


@pytest.mark.requirement("E01")
def test_nothing_claims_what_cannot_be_offered() -> None:
    """
    Neither code nor documentation claims more than at-least-once delivery with one effect.
    """
    assert hits_in(CLAIM, [file for file in SHOWN if file not in MAY_SAY_IT]) == []


@pytest.mark.requirement("E01")
def test_the_readme_says_what_is_offered() -> None:
    """
    The first page says plainly what delivery is like and what is promised about the effect.
    """
    words = " ".join(read("README.md").lower().split())

    assert "at-least-once" in words
    assert "one effect" in words


@pytest.mark.requirement("E23")
def test_no_sql_of_ours_merges() -> None:
    """
    No statement that the package writes uses MERGE. The linter shows one, as what not to write.
    """
    assert hits_in(MERGE, [file for file in SRC if not file.endswith("routine_rules.py")]) == []


def test_no_file_names_a_package_registry() -> None:
    """
    Where packages come from is the reader's own setting.
    """
    assert hits_in(HOSTS, ALL) == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    """
    Nothing depends on, or shows, where it was written.
    """
    assert hits_in(MACHINE_PATHS, ALL) == []


def test_nothing_in_the_source_is_marked_unfinished() -> None:
    """
    What is in the source is finished; what is not is not in it.
    """
    assert hits_in(UNFINISHED, SRC) == []


def test_functions_stay_small() -> None:
    """
    A function past a screen wants to be two. A file is as long as its subject.
    """
    assert [f"{file}: {one}" for file in PYTHON for one in long_functions(read(file))] == []


def test_modules_of_tests_have_names_of_their_own() -> None:
    """
    Tests import their helpers by bare name: of two helpers with one name, whichever is imported first serves both.
    """
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists())

    assert [name for name, many in names.items() if many > 1 and name != "conftest.py"] == []


class TestTheChecksThemselves:
    """Each check finds what is planted for it, and nothing in innocent text."""

    @pytest.mark.parametrize(
        "text", ["Exactly once!", "exactly-once", "exactly\n  once", "ExactlyOnce", "exactly_once"]
    )
    def test_the_claim_is_found_in_every_spelling(self, text: str) -> None:
        """
        With a hyphen, across lines, as an identifier.
        """
        assert len(hits(CLAIM, text)) == 1

    @pytest.mark.parametrize(
        ("pattern", "guilty", "innocent"),
        [
            (HOSTS, "https://" + ".".join(("files", "pythonhosted", "org")) + "/", "https://example.org/"),
            (MACHINE_PATHS, "open('/" + "work/main/x')", "docs/" + "work/home.md and https://a.example/home/x"),
            (MACHINE_PATHS, "see /" + "home/me/agent.db", "sqlite:///agent.db"),
            (UNFINISHED, "# TODO: later", "METHODOLOGY"),
            (MERGE, "merge into t using s", "merge the two lists using care"),
            (MERGE, "MERGE t AS x USING s", "emerge into view"),
        ],
    )
    def test_a_planted_word_is_found(self, pattern: re.Pattern[str], guilty: str, innocent: str) -> None:
        """
        And its innocent neighbour is not.
        """
        assert len(hits(pattern, guilty)) == 1
        assert hits(pattern, innocent) == []

    def test_the_line_of_a_hit_is_told(self) -> None:
        """
        A hit names its line, so that it can be found.
        """
        assert hits(UNFINISHED, "a\nb\nFIXME\n") == ["line 3: FIXME"]

    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_function_past_a_screen_is_found(self, kind: str) -> None:
        """
        Seventy lines are fine, seventy-one are not, also in a class.
        """
        fits = f"class C:\n  {kind} f():\n" + "    pass\n" * (LINES_IN_A_FUNCTION_MAX - 1)

        assert long_functions(fits) == []
        assert long_functions(fits + "    pass\n") == ["f: 71 lines"]

    def test_the_files_looked_at_are_there(self) -> None:
        """
        A check over no files would pass for ever.
        """
        assert {"src/onceward/_core/errors.py", "docs/reference/requirements.md", "README.md"} <= set(SHOWN)
        assert "tools/spec.py" in ALL
