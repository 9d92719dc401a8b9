"""
Pages do not deny what exists.

A sentence that says what Onceward does not have goes stale when somebody adds it. So such sentences are found by
their words, and each is listed here with a check that it is still so. A new one fails until it is listed; one whose
check fails is no longer true; one that is listed and not found is gone from the pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from doc_pages import FENCE, PAGES, ROOT

from onceward import Client, ConfigurationError, Gate
from onceward.adapters._registry import ADAPTERS
from onceward.cli import build_parser
from onceward.stores import open_store
from onceward.verdicts import Certainty, Classifier

# What a sentence must say to be one of those.
SUBJECT = r"(?:Onceward|[Ww]e|[Vv]ersion \d[\d.]*|[Tt]his (?:version|package|project|library))"
FEATURE = (
    r"(?:HTTP|middlewares?|servers?|services?|clients?|webhooks?|outbox|inbox|ledger|journal|dashboard|metrics|traces|"
    r"adapters?|async|asyncio|trio|PostgreSQL|Redis|MySQL|MongoDB|DynamoDB|queues?|command line|CLI|plans?|retries|"
    r"breakers?|TypeScript|Windows)"
)
DENIALS = (
    rf"\b{SUBJECT}(?: \d[\d.]*)? (?:has|have|is|knows?|offers?|supports?|speaks?)\b[^.|]*\b(?:no|not|only|nothing)\b",
    rf"\b{SUBJECT}(?: \d[\d.]*)? (?:does not|do not|doesn't|cannot|can not|lacks?)\b",
    r"\b(?:Onceward|[Vv]ersion) \d[\d.]* (?:is|has)\b",
    rf"\b(?:and|but|has|have|with|there is|there are|comes with) no {FEATURE}\b",
    r"\bnot (?:yet )?(?:supported|available|implemented|offered|built|included)\b",
    r"\bnot yet (?:there|done|possible|part)\b",
    r"\b(?:of|for|with|but) nothing else\b",
    r"\b(?:in|for) a later (?:version|release)\b",
    r"\ba library and a command line\b",
)
DENIAL = re.compile("|".join(DENIALS))

# Generated from the code, or a list of what others asked for.
NOT_OURS = {"docs/reference/requirements.md"}


def refuses(error: type[Exception], call: Callable[[], object]) -> bool:
    """Whether a call is refused so."""
    with pytest.raises(error):
        call()
    return True


def no_import_of(library: str) -> bool:
    """Whether nothing in the package imports a library."""
    pattern = re.compile(rf"^\s*(?:import|from) {library}\b", re.MULTILINE)
    return not any(pattern.search(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py"))


def has_no_ledger() -> bool:
    """Whether a client of a local file refuses to speak of balances."""
    with TemporaryDirectory() as folder, Client(f"sqlite:///{folder}/local.db") as client:
        return refuses(ConfigurationError, lambda: client.balance.derive("cus_17"))


def gate() -> Gate:
    return Gate("memory://", scope="test:denials")


# What a page says, and whether it is still so.
STILL_SO: dict[tuple[str, str], Callable[[], bool]] = {
    ("docs/explanation/promise-and-limits.md", "of nothing else"): lambda: (
        {"sqlite3", "psycopg", "sqlalchemy", "django"} == {name for name in ADAPTERS if not name.startswith("_")}
    ),
    ("docs/how-to/mark-an-effect.md", "an error that Onceward does not know"): lambda: (
        Classifier().judge(ArithmeticError()).certainty is Certainty.UNKNOWN
    ),
    ("docs/reference/client.md", "It has no ledger"): has_no_ledger,
    (
        "docs/decisions/081-a-call-of-the-client-is-one-value.md",
        "a local file is one database, and has no ledger",
    ): has_no_ledger,
    ("docs/how-to/install.md", "Version 0.1.0 is not on PyPI yet"): lambda: (
        "\n## 0.1.0 - unreleased\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    ),
    ("docs/reference/http-clients.md", "trio is not supported"): lambda: no_import_of("trio"),
}


def sentences(page: str) -> list[str]:
    """The sentences of a page's prose, on one line each."""
    prose = FENCE.sub("\n\n", page)
    parts = re.split(r"\n\s*\n|\n(?=[-*|#])|(?<=[.!?:;])\s+", prose)
    return [" ".join(part.split()) for part in parts if part.strip()]


def denials(name: str, page: str) -> list[tuple[str, str]]:
    """What a page denies: its name, and the sentence."""
    return [(name, sentence) for sentence in sentences(page) if DENIAL.search(sentence)]


def unlisted(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Denials that nobody vouches for."""
    return [
        (name, sentence)
        for name, sentence in found
        if not any(name == page and phrase in sentence for page, phrase in STILL_SO)
    ]


def all_denials() -> list[tuple[str, str]]:
    found = []
    for page in (*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        name = page.relative_to(ROOT).as_posix()
        if name not in NOT_OURS:
            found += denials(name, page.read_text(encoding="utf-8"))
    return found


@pytest.mark.fault("a-page-denies-http")
def test_every_denial_is_vouched_for() -> None:
    """
    What a page says that Onceward has not is in the table above, with its check.
    """
    assert unlisted(all_denials()) == []


@pytest.mark.parametrize("listed", STILL_SO, ids=lambda listed: f"{Path(listed[0]).name}: {listed[1]}")
def test_what_is_said_to_be_missing_is_missing(listed: tuple[str, str]) -> None:
    """
    It is still said, and it is still so.
    """
    page, phrase = listed

    assert any(page == name and phrase in sentence for name, sentence in all_denials()), "no page says that any more"
    assert STILL_SO[listed](), "there is such a thing: change the page"


@pytest.mark.parametrize(
    "stale",
    [
        "Onceward 0.1 has SQLite, PostgreSQL, Redis and memory, and no HTTP.",
        "**Version 0.1 is a library and a command line.**",
        "Onceward does not speak to Redis.",
        "It is a gate, and there is no middleware.",
        "MongoDB is not yet supported.",
        "`atomic` joins transactions of `sqlite3` and psycopg, and of nothing else.",
        "We have no dashboard.",
    ],
)
def test_a_stale_denial_is_found(stale: str) -> None:
    """
    However it is put; and vouched for on one page, it is not on another.
    """
    assert [("docs/new.md", stale)] == unlisted(denials("docs/new.md", f"Prose before it.\n\n{stale}\n\nAnd after."))


def test_what_is_no_denial_is_left_alone() -> None:
    """
    Rules about keys and effects say "no" all the time.
    """
    page = (
        "There is no key, so nothing was run. Nothing else changes a record. It has no effect. The header is missing."
    )

    assert denials("docs/new.md", page) == []


def test_features_that_pages_used_to_deny_exist() -> None:
    """
    The table can tell: a check of something that exists says so.
    """
    commands = build_parser().format_help()

    assert "serve" in commands and "relay" in commands
    assert not no_import_of("starlette")
    assert refuses(ConfigurationError, lambda: open_store("mongodb://localhost/x"))


def test_the_glossary_defines_each_word_once() -> None:
    """
    A word with two meanings says which: `probe (of a breaker)`.
    """
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in glossary.splitlines() if line.startswith("| ")][1:]
    words = [word.strip() for row in rows for word in row.split(",")]

    assert sorted({word for word in words if words.count(word) > 1}) == []
