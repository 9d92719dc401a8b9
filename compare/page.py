"""
Makes docs/explanation/compared-with-peers.md from compare/results.json, and the short table for other pages.

    python -m compare.page                 write the page
    python -m compare.page --check         say whether it is up to date
    python -m compare.page README.md       put the short table between its two markers

Every sentence is made from the kept answers by a rule: of a question (`say`, `better`), or of `CHOICES` below. What
comes from a peer's documentation says so. The words around them are in compare/page_words.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from compare.peers import ANY, BREAKER, FUNCTION, HTTP, RETRY, Peer, of_kind
from compare.questions import Question, questions
from compare.results import OURS, Results, read

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "compared-with-peers.md"
WORDS = ROOT / "compare" / "page_words.md"
MADE = "<!-- Made by `make compare` from compare/results.json and compare/page_words.md. Change those. -->\n"
STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis", "temporal": "its development server"}
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
MANY = 10
TABLE_ROWS = ("killed-after", "raises", "at-once", "other-arguments", "resumes", "server", "install")
TABLE_PEERS = (OURS, "idemkit", "agent-once", "aws-lambda-powertools", "dbos", "temporalio")
"""What the short table shows: whom people most often ask about."""


class Choice(NamedTuple):
    """When to take something else: a sentence, and what must be so in the answers for it to be said."""

    text: str
    holds: Callable[[Callable[[str, str], dict[str, Any] | None]], bool]
    source: str
    """The questions that it rests on, or the peer whose documentation says it."""


def _any(*facts: bool | None) -> bool:
    return any(bool(fact) for fact in facts)


CHOICES = (
    Choice(
        "**DBOS or Temporal, when you want a workflow that continues by itself**: timers, signals, long waits, "
        "a view of every run.",
        lambda seen: _any(*((seen("resumes", name) or {}).get("alone") for name in ("dbos", "temporalio"))),
        "`resumes`; timers, signals and views are from their documentation",
    ),
    Choice(
        "**idemkit or an engine, when running twice does no harm**, and you never want to be asked: it "
        "automatically finishes what was killed before its effect.",
        lambda seen: (
            (seen("killed-before", "idemkit") or {}).get("effects") == 1
            and "returned" in (seen("killed-before", "idemkit") or {})["second"]
        ),
        '`killed-before`; with Onceward, set `guarantee="repeatable"`',
    ),
    Choice(
        "**idemkit, when you need MongoDB or DynamoDB**, which it has stores for.",
        lambda seen: seen("server", "idemkit") is not None,
        "from the documentation of idemkit",
    ),
    Choice(
        "**Powertools, when you run on AWS Lambda with DynamoDB**: it is made for that, and comes in four languages.",
        lambda seen: seen("server", "aws-lambda-powertools") is not None,
        "from the documentation of aws-lambda-powertools",
    ),
    Choice(
        "**Temporal, when your workers are written in several languages**: it has SDKs for seven; Onceward is a "
        "library for Python, with a service for all others.",
        lambda seen: seen("server", "temporalio") is not None,
        "from the documentation of temporalio",
    ),
    Choice(
        "**tenacity or backoff, when you only retry calls that are harmless to repeat**, and need neither keys nor "
        "budgets: they are small, and have been released far more often.",
        lambda seen: _any(
            *((seen("releases", name) or {"releases": 0})["releases"] >= MANY for name in ("tenacity", "backoff"))
        ),
        "`releases`, `install`",
    ),
    Choice(
        "**A unique constraint and `ON CONFLICT DO NOTHING`, when all your effects are rows with a natural "
        "key**: no package at all.",
        lambda seen: True,
        "no question: it is what SQL does",
    ),
)


def page(words: str, kept: Results) -> str:
    """The page as it should be."""
    known = questions()
    figures: dict[str, Callable[[], str]] = {
        "better": lambda: "\n".join(_better(known, kept)) or "None of the questions below was answered better.",
        "table": lambda: table(kept),
        "choices": lambda: "\n".join(_choices(kept)),
        "versions": lambda: "\n".join(_versions(kept)),
        FUNCTION: lambda: _sections(known, kept, FUNCTION),
        HTTP: lambda: _sections(known, kept, HTTP),
        RETRY: lambda: _sections(known, kept, RETRY),
        BREAKER: lambda: _sections(known, kept, BREAKER),
        ANY: lambda: _sections(known, kept, ANY),
    }
    return MADE + re.sub(r"\{\{(\w+)\}\}", lambda found: figures[found[1]](), words)


def seen(kept: Results, question: str, peer: str) -> dict[str, Any] | None:
    """What was seen of a peer; None if it was not asked."""
    answer: dict[str, Any] = kept["answers"].get(question, {}).get(peer, {})
    return answer.get("seen")


def _better(known: dict[str, Question], kept: Results) -> Iterable[str]:
    for question in known.values():
        ours = seen(kept, question.name, OURS)
        found = []
        for peer in of_kind(question.kind):
            theirs = seen(kept, question.name, peer.name)
            figure = question.better(ours, theirs) if not peer.ours and ours and theirs else None
            if figure is not None:
                found.append(f"{peer.name} {figure}".strip())
        if ours and found:
            yield f"- **{question.best(ours)}** (`{question.name}`): {', '.join(found)}."


def _choices(kept: Results) -> Iterable[str]:
    for choice in CHOICES:
        if choice.holds(lambda question, peer: seen(kept, question, peer)):
            yield f"- {choice.text} ({_dated(choice.source, kept)})"


def _dated(source: str, kept: Results) -> str:
    name = source.removeprefix("from the documentation of ")
    return f"{source} {_version(kept, name)}" if name != source else source


def _version(kept: Results, peer: str) -> str:
    versions = {answers[peer]["version"] for answers in kept["answers"].values() if peer in answers}
    return " and ".join(sorted(versions))


def _versions(kept: Results) -> Iterable[str]:
    yield "| package | version | asked on | about |"
    yield "|---|---|---|---|"
    for peer in of_kind(ANY):
        if not peer.ours:
            days = {answers[peer.name]["day"] for answers in kept["answers"].values() if peer.name in answers}
            when = ", ".join(sorted(days)) or "not asked yet"
            yield f"| {peer.name} | {_version(kept, peer.name)} | {when} | {peer.about} |"


def table(kept: Results) -> str:
    """The short table."""
    known = questions()
    named = [peer if peer == OURS else f"{peer} {_version(kept, peer)}" for peer in TABLE_PEERS]
    rows = [f"| | {' | '.join(named)} |", "|---" * (len(TABLE_PEERS) + 1) + "|"]
    for name in TABLE_ROWS:
        cells = [_cell(known[name], kept, peer) for peer in TABLE_PEERS]
        rows.append(f"| {_row_title(known[name])} (`{name}`) | {' | '.join(cells)} |")
    return "\n".join(rows)


def _row_title(question: Question) -> str:
    return question.row or question.title


def _cell(question: Question, kept: Results, peer: str) -> str:
    data = seen(kept, question.name, peer)
    if data is None:
        return "-"
    said = question.cell(data)
    return f"**{said}**" if peer == OURS else said


def _sections(known: dict[str, Question], kept: Results, kind: str) -> str:
    return "\n\n".join(_section(one, kept) for one in known.values() if one.kind == kind)


def _section(question: Question, kept: Results) -> str:
    lines = [f"### {question.title}", "", f"`{question.name}`: {question.how}", ""]
    answers = kept["answers"].get(question.name, {})
    said: dict[str, list[str]] = {}
    for peer in of_kind(question.kind):
        answer = answers.get(peer.name)
        if answer is not None:
            data = answer.get("seen")
            sentence = question.say(data) if data is not None else f"not asked: {answer['missing']}"
            said.setdefault(sentence, []).append(_named(question, peer, answer))
    return "\n".join([*lines, *(f"- {', '.join(names)}: {sentence}." for sentence, names in said.items())])


def _named(question: Question, peer: Peer, answer: dict[str, Any]) -> str:
    """A package with its version, and the store that it was asked on where that matters."""
    name = f"**{OURS}**" if peer.ours else f"{peer.name} {answer['version']}"
    store = STORES.get(answer.get("store", "")) if question.kind != ANY else None
    return f"{name} ({store})" if store else name


def with_table(text: str, kept: Results) -> str:
    """A text with the short table between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the table: put {BEGIN} and {END} on lines of their own")
    return f"{before}{BEGIN}\n{table(kept)}\n{END}{after}"


def made() -> str:
    """The page of what is kept now."""
    return page(WORDS.read_text(encoding="utf-8"), read())


def write() -> None:
    """Write the page, and the table of the README if it has a place for it."""
    PAGE.write_text(made(), encoding="utf-8")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if BEGIN in text:
        readme.write_text(with_table(text, read()), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write it, compare it, or put the table elsewhere."""
    if arguments == ["--check"]:
        same = PAGE.read_text(encoding="utf-8") == made()
        print("up to date" if same else "out of date: run python -m compare.page")
        return 0 if same else 1
    for name in arguments:
        path = Path(name)
        path.write_text(with_table(path.read_text(encoding="utf-8"), read()), encoding="utf-8")
        print(f"put the table into {name}")
    if not arguments:
        write()
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
