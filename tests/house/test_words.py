"""Words that must not appear, and sizes that must not be passed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from source_trees import parsed

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

# Turns of phrase that stopped readers, in messages or on pages. Each is a pattern and what to write instead.
STOPPED_READERS: dict[str, str] = {
    r"\b(?:it )?counts not\b": "does not count",
    r", is not told\b": "the response does not say which",
    r"\bis none, is told\b": "an unknown name is reported",
    r"\bcomes? again in\b": "retry in 5 s; is delivered again in 5 s",
    r"\(otherwise: ": "(default: 24 h)",
    r"\bin the midst\b": "during, in the middle of",
    r"\bin vain\b": "without success",
    r"\b[Ww]hoever (?:decide|deliver|own|comes|waits|does|has|sen[dt]|reads|can|runs|may)": "the caller, anyone who",
    r"\buntil somebody\b": "until someone decides",
    r"\b[Ss]omebody is (?:needed|at it)\b": "a person is needed",
    r"\b[Nn]obody is needed\b": "nothing needs attention",
    r"\bnone of (?:PostgreSQL|SQLite|Flask|Onceward)'s\b": "no route of Flask, not a built-in type",
    r"\b(?:function|store|proxy|probe|hook|schema|client) of (?:ours|yours)\b": "your own function, Onceward's client",
    r"\b(?:made|begins?|begun|makes?|computes?|read|salted) (?:\w+ ){0,2}(?:anew|afresh)\b": "again, new each time",
    r"\bmade afresh\b": "new each time",
    r"\blet(?:s)? go of (?:it|them|a)\b": "discard, release, close",
    r"\bbelongs? into\b": "belongs in",
    r"\bthat (?:matches|there is) counts\b": "the first one found is used",
    r"\bcut to fit\b": "shortened",
    r"\bthe page before (?:says|said|ended)\b": "the previous page",
    r"\b[Ll]ook whether\b": "check whether",
    r"\b(?:ended|begins?) so\b": "ended like this, begins like this",
    r"\bone that is there is left\b": "an existing one is left as it is",
    r"\bagain (?:does no harm|is harmless)\b": "running it again is safe",
    r"\bhave the quota raised\b": "ask for a higher quota",
    r"\bas many as it (?:may|can) have\b": "has reached its limit",
    r"\b[\d}] are taken\b": "the limit is N",
    r"\bas they should be\b": "as expected",
    r"\bis, is said for each\b": "declare each",
    r"\bthat there is not \(": "that does not exist",
    r"\bdoes not open in its place\b": "cannot be opened",
    r"\bwhat became of (?:it|a|an)\b": "what happened, the outcome of",
    r"\b(?:and|or) happen yet\b": "may still happen",
    r"\bis brought by\b": "comes from",
    r"\bStop whoever\b": "stop the program that uses it",
    r"\bneeds? somebody\b": "a person has to act",
    r"\b(?:rows|letters|versions?|functions) of before\b": "older rows, the previous version",
    r"\ban? (?:question|column|index|command|page|write) (?:more|less)\b": "one more query, one more column",
    r"\bkeeps? its word\b": "really syncs when told to",
    r"\b[Aa] racer\b": "a concurrent caller",
    r"\bknows (?:it|its key) again\b": "recognises it",
    r"\btelling how far\b": "shows its progress",
    r"\bwins over\b": "overrides",
    r"\bis not what it was\b": "was changed",
    r"\bwants an? `?--": "needs `--yes`",
    r"\bin the same words\b": "with the same methods, with the same message",
    r"\b[Ww]hatever is no\b": "anything that is not",
    r"\bif need be\b": "if necessary",
    r"\b[Cc]ourses? of events\b": "scenario",
    r"\bstands? and falls? with\b": "commits or rolls back with",
    r"\bas the database has it\b": "as it is in the database",
    r"\btr(?:y|ies) again for ever\b": "retries for ever",
    r"\brules were put right by\b": "were used to correct the rules",
}
# Made from scripts, or a list of what others asked for.
NOT_EDITED = {
    "docs/reference/requirements.md",
    "docs/reference/benchmarks.md",
}

TEXT = frozenset(
    (".py", ".md", ".sql", ".lua", ".toml", ".txt", ".json", ".html", ".sh", ".yml", ".yaml", ".cfg", ".ts", ".js", "")
)
MADE = frozenset({"__pycache__", "node_modules", "dist"})


def texts(*places: str) -> list[str]:
    """The text files in these places, as paths from the project's root."""
    found = []
    for place in places:
        path = ROOT / place
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        found += [file for file in files if file.is_file() and file.suffix in TEXT and MADE.isdisjoint(file.parts)]
    return [file.relative_to(ROOT).as_posix() for file in found]


SRC = texts("src")
PYTHON = [file for file in SRC if file.endswith(".py")]
SHOWN = texts("src", "docs", "examples", "clients", *sorted(path.name for path in ROOT.glob("*.md")))
OTHERS = (
    "tools", "tests", "bench", "compare", "soak", "ops", "requirements", ".github",
    "Makefile", "Dockerfile", "compose.yaml", ".dockerignore", "pyproject.toml",
)  # fmt: skip
ALL = sorted({*SHOWN, *texts(*OTHERS)})


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
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or 0) - node.lineno + 1) > LINES_IN_A_FUNCTION_MAX
    ]


@pytest.mark.requirement("E01")
def test_nothing_claims_what_cannot_be_offered() -> None:
    """
    Neither code nor documentation claims more than at-least-once delivery with one effect.
    """
    assert hits_in(CLAIM, [file for file in SHOWN if file not in MAY_SAY_IT]) == []


@cache
def prose(file: str) -> str:
    """What a file shows to people: a page as it is, of a module the texts that are no docstrings."""
    if not file.endswith(".py"):
        return " ".join(read(file).split())
    tree = parsed(read(file))
    beside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in beside)
    return "\n".join(" ".join(node.value.split()) for node in constants if isinstance(node.value, str))


@pytest.mark.fault("a-message-says-anew")
@pytest.mark.parametrize("pattern", STOPPED_READERS)
def test_no_text_has_a_turn_of_phrase_that_stopped_readers(pattern: str) -> None:
    """
    In messages, help, log lines and pages. What to write instead stands beside each.
    """
    pages = [file for file in SHOWN if file.startswith("docs/") and file.endswith(".md")]
    files = [*PYTHON, *(page for page in pages if page not in NOT_EDITED)]
    found = re.compile(pattern)

    assert [f"{file}: {hit.group()}" for file in files for hit in found.finditer(prose(file))] == []


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

    @pytest.mark.parametrize(
        "text",
        [
            "until then it counts not",
            "Which of these it is, is not told",
            "or a name that is none, is told with its place",
            "come again in 5 s",
            "(otherwise: 86400.0)",
            "a key that is made anew by now()",
            "a function of yours",
            "nobody runs it until somebody decides",
        ],
    )
    def test_a_turn_of_phrase_is_found(self, text: str) -> None:
        """
        Those that strangers stumbled over are.
        """
        assert any(re.search(pattern, text) for pattern in STOPPED_READERS)

    def test_plain_words_are_left_alone(self) -> None:
        """
        Usual words are not on the list.
        """
        text = "Nobody knows whether it happened. Retry in 5 s; a new key is a new operation. Check whether it ran."

        assert [pattern for pattern in STOPPED_READERS if re.search(pattern, text)] == []

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
