"""
Write the blocking half of every pair from its awaiting half.

    python tools/halves.py              write every half that is not up to date
    python tools/halves.py --check      write nothing; exit code 1 and a line for each that is not

The awaiting text is written by hand, and begins with a line that names the file to make of it, and names of its own:

    # blocking half: plan.py; acall=call, afirst=first

What is made is committed, so that people, debuggers and type checkers see plain Python. Tokens are edited in place, so
that comments and layout survive; "up to date" compares syntax trees, so that a new formatter breaks nothing. What
cannot be turned is refused, and not guessed.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"# blocking half: (\w+\.py)(?:; (.+))?\n")
HEADER = "# Made from {} by `make halves`: change that file, not this one.\n"
MADE = re.compile(re.escape(HEADER).replace(r"\{\}", r"(\S+)"))

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aadmit": "admit",
    "acall": "call",
    "acaught_up": "caught_up",
    "aclose": "close",
    "aconnect": "connect",
    "afirst": "first",
    "ainterrupted": "interrupted",
    "areport": "report",
    "asynccontextmanager": "contextmanager",
    "awithdraw": "withdraw",
}
"""Names that no pattern turns. One that is used nowhere is an error, and so is an unused one of a file's own."""
PROMISES = {"Awaitable": 0, "Coroutine": 2}
"""Types of what is to be awaited: which of their parameters comes of it."""
LEFTOVERS = frozenset(
    {"asyncio", "AWAITS", "aclosing", "aiter", "anext", "isawaitable", "iscoroutine", "iscoroutinefunction", *PROMISES}
)
"""What no blocking text says; nor does it say `async` in the midst of a name, as in `enter_async_context`."""
EXEMPT = "# of no colour"
"""On a line that calls something by the blocking name of another thing. Where it is not needed, it is an error."""


class Refused(Exception):
    """This text has no blocking half."""


class Edit(NamedTuple):
    """Put `text` in the place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str


@dataclass
class Text:
    """A source text with its tree, and positions as offsets."""

    text: str
    lines: list[str] = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = list(io.StringIO(self.text))  # As Python reads lines: `splitlines` knows other ends, too.
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    @cached_property
    def tree(self) -> ast.Module:
        """What Python reads in it."""
        return ast.parse(self.text)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node stands."""
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        last, end = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return self._at(line, column), self._at(last, end)

    def said(self, node: ast.AST) -> str:
        """A node's own text."""
        start, end = self.span(node)
        return self.text[start:end]

    def edited(self, edits: Iterable[Edit]) -> Text:
        """The text with these edits, which do not overlap."""
        made, done = [], 0
        for edit in sorted(edits):
            made += [self.text[done : edit.start], edit.text]
            done = edit.end
        return Text("".join(made) + self.text[done:])

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())


class Twins(NamedTuple):
    """Blocking names that have an awaiting twin."""

    imported: frozenset[str]
    """Classes and functions: `Store`, because there is `AsyncStore`; `join`, because there is `join_async`."""
    called: dict[str, str]
    """Methods: `admit`, because there is `aadmit` beside it, or in an awaiting half; with the twin's name."""
    fields: frozenset[str] = frozenset()
    """What is data in some class: `called.ask` need not be the method of a courier."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> Twins:
        """Those that a package defines."""
        top: set[str] = set()
        fields: set[str] = set()
        called: dict[str, str] = {}
        for text in texts:
            tree, mark = ast.parse(text), MARK.match(text)
            own = {} if mark is None else _given(mark)
            top |= _defined(tree)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    names = _defined(node)
                    fields |= set(_bound(node.body)) - names
                    called |= {bare: name for name in names for bare in _bare(name) if bare in names}
                    made = {_turned_name(name, NAMES | own): name for name in names if mark is not None}
                    called |= {bare: name for bare, name in made.items() if bare != name}
        twins = {bare for name in top for bare in _bare(name) if bare in top}
        return cls(frozenset(twins), called, frozenset(fields))


def _defined(node: ast.Module | ast.ClassDef) -> set[str]:
    return {one.name for one in node.body if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    """What a block defines, but for what is defined several times by right: overloads, and setters of properties."""
    for one in body:
        match one:
            case ast.FunctionDef(decorator_list=[*_, ast.Attribute() | ast.Name(id="overload")]):
                pass
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _bare(name: str) -> set[str]:
    """What the blocking twin of a thing with this name would be called."""
    found = {re.sub(r"^(_*)a(?=[a-z])", r"\1", name), re.sub(r"(^|_)async_", r"\1", name), _turned_name(name, {})}
    return found - {name}


def _given(mark: re.Match[str]) -> dict[str, str]:
    """The names of a file's own, from its first line."""
    return dict(rule.split("=", 1) for rule in (mark[2] or "").split(", ") if rule)


def turned(source: str, given: dict[str, str], twins: Twins, used: set[str]) -> str:
    """The blocking text; the rules that it took are added to `used`."""
    text = Text(source)
    _check_colours(text.tree, twins, text.lines)
    text = _words(text, NAMES | given, used)
    while (edit := _structural(text)) is not None:
        text = text.edited([edit])
    _check_result(text, source)
    return text.text


# --- what is refused ---


def _check_colours(tree: ast.Module, twins: Twins, lines: list[str]) -> None:
    """The awaiting text must not use the blocking name of something that has an awaiting one."""
    kept, exempt = _kept(tree), {number for number, line in enumerate(lines, 1) if EXEMPT in line}
    choices = (node for node in ast.walk(tree) if isinstance(node, ast.IfExp) and ast.unparse(node.test) == "AWAITS")
    blocking = {id(node) for choice in choices for node in ast.walk(choice.orelse)}
    needed: set[int] = set()
    for node, why in _blocking_names(tree, twins):
        if node.lineno in exempt:
            needed.add(node.lineno)
        elif node.lineno not in kept and id(node) not in blocking:
            raise Refused(f"line {node.lineno}: {why}; if it is another one that nobody awaits, say `{EXEMPT}` there")
    if unneeded := exempt - needed:
        raise Refused(f"line {min(unneeded)}: `{EXEMPT}` is not needed")


def _blocking_names(tree: ast.Module, twins: Twins) -> Iterator[tuple[ast.expr | ast.alias, str]]:
    """What is called by the blocking name of something that has an awaiting one, and what is wrong with it."""
    nodes = list(ast.walk(tree))
    awaited = {id(node.value) for node in nodes if isinstance(node, ast.Await)}
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    threads = [call for call in calls.values() if ast.unparse(call.func) == "asyncio.to_thread"]
    sent = {id(one) for call in threads for one in call.args}
    ours = {
        alias.asname or alias.name.partition(".")[0]: alias
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if getattr(node, "level", 0) or (getattr(node, "module", "") or alias.name).startswith("onceward")
    }
    for node in nodes:
        match node:
            case ast.alias(name=name, asname=str()) if name in twins.imported and node in ours.values():
                yield node, f"{name} blocks, and has an awaiting twin"
            case ast.Name(id=name) | ast.Attribute(attr=name) if (
                name in twins.imported and ast.unparse(node).partition(".")[0] in ours
            ):
                yield node, f"{name} blocks, and has an awaiting twin"
            case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if name in twins.called:
                # Not a text's own method (`", ".join`), what a thread is to call, or what may be data.
                call = calls.get(id(node))
                harmless = isinstance(value, ast.Constant) or id(node) in sent or (not call and name in twins.fields)
                if not harmless and id(call) not in awaited:
                    yield node, f".{name} blocks, and has the twin {twins.called[name]}"


def _check_result(text: Text, source: str) -> None:
    """Nothing awaits any more, nothing has become one with another, and nothing exists twice."""
    for node in ast.walk(text.tree):
        match node:
            case ast.Await() | ast.AsyncFunctionDef() | ast.AsyncWith() | ast.AsyncFor():
                raise Refused(f"line {node.lineno} of the blocking text still awaits: {ast.unparse(node)[:80]}")
            case ast.Name(id=name) | ast.Attribute(attr=name):
                if name in LEFTOVERS or re.search("[A-Za-z]_?[Aa]sync", name):
                    raise Refused(f"line {node.lineno} of the blocking text still says {name}")
            case ast.ImportFrom(module="asyncio") | ast.alias(name="asyncio" | "AWAITS", asname=str()):
                raise Refused(f"line {node.lineno}: import asyncio and AWAITS by these names, so that they are seen")
            case ast.ClassDef() | ast.Module() | ast.FunctionDef():
                bound = list(_bound(node.body))
                if twice := {name for name in bound if bound.count(name) > 1}:
                    raise Refused(f"two become one: {', '.join(sorted(twice))}")
    compile(text.text, "the blocking text", "exec")  # Two parameters that became one are seen only here.
    before = {ast.dump(one) for one in ast.parse(source).body}
    for one in text.tree.body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef) and ast.dump(one) in before:
            raise Refused(f"{one.name} has no colour, and would exist twice: put it where both halves import it from")


def _side(node: ast.AST) -> list[ast.stmt] | None:
    """The blocking side of a branch on AWAITS."""
    if not isinstance(node, ast.If):
        return None
    return {"AWAITS": node.orelse, "not AWAITS": node.body}.get(ast.unparse(node.test))


def _kept(tree: ast.Module) -> set[int]:
    """Lines of the blocking sides of branches: they are in the blocking text's words already."""
    statements = (one for node in ast.walk(tree) for one in _side(node) or ())
    return {line for one in statements for line in range(_first(one), (one.end_lineno or 0) + 1)}


def _first(node: ast.stmt) -> int:
    """The line where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


# --- edits that need only the words ---


def _words(text: Text, names: dict[str, str], used: set[str]) -> Text:
    """Without `await` and `async`, and with the other names; strings only where they are code."""
    kept, code, depth = _kept(text.tree), _strings_of_code(text.tree), 0
    edits = [edit for node in ast.walk(text.tree) if isinstance(node, ast.Await) for edit in _bared(text, node)]
    for token in tokenize.generate_tokens(io.StringIO(text.text).readline):
        kind, word = tokenize.tok_name[token.type], token.string
        # Before Python 3.12 an f-string is one token, since then many: it is left alone by both.
        depth += (kind == "FSTRING_START") - (kind == "FSTRING_END")
        formatted = kind == "FSTRING_MIDDLE" or (kind == "STRING" and "f" in re.split("['\"]", word)[0].lower())
        if formatted and token.start[0] not in kept and _prose(word, names, len(word)) != word:
            raise Refused(f"line {token.start[0]}: give the code in {word} a name before the f-string")
        if token.start[0] in kept or depth or formatted or kind not in ("NAME", "STRING", "COMMENT"):
            continue
        start, end = (text.starts[line - 1] + column for line, column in (token.start, token.end))
        if kind == "COMMENT" and word == EXEMPT:
            edits.append(Edit(start, end, ""))
        elif kind == "NAME" and word in ("await", "async"):
            gap = len(text.text[end:]) - len(text.text[end:].lstrip(" "))
            edits.append(Edit(start, end + gap, ""))
        elif kind == "NAME":
            edits.append(Edit(start, end, _turned_name(word, names, used)))
        elif kind == "STRING" and token.start in code:
            if LEFTOVERS.intersection(re.findall(r"\w+", word)):
                raise Refused(
                    f"line {token.start[0]}: {word} is no type of the blocking text: name it outside of a string"
                )
            edits.append(Edit(start, end, re.sub(r"\w+", lambda found: _turned_name(found[0], names, used), word)))
        else:
            edits.append(Edit(start, end, _prose(word, names, token.start[1] + 4)))
    for node in ast.walk(text.tree):
        if isinstance(node, ast.JoinedStr) and node.lineno not in kept:
            for one in ast.walk(node):
                word = one.id if isinstance(one, ast.Name) else one.attr if isinstance(one, ast.Attribute) else ""
                if isinstance(one, ast.Await) or _turned_name(word, names) != word:
                    raise Refused(f"line {node.lineno}: give {ast.unparse(one)} a name before the f-string")
    return text.edited(edit for edit in edits if text.text[edit.start : edit.end] != edit.text)


def _bared(text: Text, node: ast.Await) -> list[Edit]:
    """`(await x()).y` needs no parentheses any more."""
    start, end = text.span(node)
    around = text.text[start - 2 : start], text.text[end : end + 2]
    if (
        isinstance(node.value, ast.Call)
        and re.fullmatch(r"[^\w)\]]\(", around[0])
        and re.fullmatch(r"\)[.\[]", around[1])
    ):
        return [Edit(start - 1, start, ""), Edit(end, end + 1, "")]
    return []


def _strings_of_code(tree: ast.Module) -> set[tuple[int, int]]:
    """Where strings stand that name things: `cast("AsyncX", ...)`, `__all__`."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="cast"), args=[first, *_]):
                found.append(first)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=elements)):
                found += elements
    return {(one.lineno, one.col_offset) for one in found if isinstance(one, ast.Constant)}


def _turned_name(word: str, names: dict[str, str], used: set[str] | None = None) -> str:
    if word in names:
        if used is not None:
            used.add(word)
        return names[word]
    word = re.sub(r"(?<=\w)_async$", "", word)
    word = re.sub(r"^(_*)Async(?=[A-Z])", r"\1", word)
    return re.sub(r"^(_*)Awaiting(?=[A-Z]|$)", r"\1Blocking", word)


def _prose(text: str, names: dict[str, str], indent: int) -> str:
    """What is marked as code in comments and strings: between backticks, or indented below a docstring's text."""

    def code(found: re.Match[str]) -> str:
        inside = re.sub(r"\bawait |\basync (?=with|for|def)", "", found[0])
        return re.sub(r"\w+", lambda word: _turned_name(word[0], names), inside)

    text = re.sub(r"\b([Aa])n (?=`_*Async[B-DF-HJ-NP-TV-Z])", r"\1 ", text)
    return re.sub(rf"`[^`\n]+`|(?m:^ {{{indent},}}\S.*$)", code, text)


# --- edits that need the tree ---


def _structural(text: Text) -> Edit | None:
    """One edit: what depends on AWAITS, what goes into a thread, what is a promise."""
    for node in ast.walk(text.tree):
        match node:
            case ast.If() if (side := _side(node)) is not None:
                return _branch(text, node, side)
            case ast.IfExp(test=ast.Name(id="AWAITS"), orelse=other):
                return Edit(*text.span(node), text.said(other))
            case ast.keyword(value=ast.Name(id="AWAITS") as flag) | ast.Assign(value=ast.Name(id="AWAITS") as flag):
                return Edit(*text.span(flag), "False")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="to_thread"), args=[fn, *rest]):
                given = ", ".join(text.said(one) for one in (*rest, *node.keywords))
                plain = isinstance(fn, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
                return Edit(*text.span(node), f"{text.said(fn)}({given})" if plain else f"({text.said(fn)})({given})")
            case ast.Subscript(value=ast.Name(id=name), slice=inside) if name in PROMISES:
                which = inside.elts[PROMISES[name]] if isinstance(inside, ast.Tuple) else inside
                return Edit(*text.span(node), text.said(which))
    return None


def _branch(text: Text, node: ast.If, side: list[ast.stmt]) -> Edit:
    """One side of a branch in its place, with the comments above its first line."""
    start, end = text.starts[node.lineno - 1], text.starts[node.end_lineno or 0]
    first = _first(side[0]) if side else 0
    gap = len(text.lines[first - 1]) - len(text.lines[first - 1].lstrip()) - node.col_offset
    if text.lines[node.lineno - 1].lstrip().startswith("elif") or (side and gap <= 0):
        raise Refused(f"line {node.lineno}: a branch on AWAITS stands by itself, on lines of its own and without elif")
    if not side:
        return Edit(start, end, "")
    texts = (one for statement in side for one in ast.walk(statement) if isinstance(one, ast.Constant | ast.JoinedStr))
    inside = {line for one in texts for line in range(one.lineno + 1, (one.end_lineno or 0) + 1)}
    while text.lines[first - 2].lstrip().startswith("#"):
        first -= 1
    numbers = range(first, max(one.end_lineno or 0 for one in side) + 1)
    lines = ((number, text.lines[number - 1]) for number in numbers)
    return Edit(start, end, "".join(one if number in inside else one.removeprefix(" " * gap) for number, one in lines))


# --- files ---


class Half(NamedTuple):
    """A pair: what is written, what is made of it, and the names of its own."""

    source: Path
    target: Path
    given: dict[str, str]


def halves(src: Path) -> Iterator[Half]:
    """Every awaiting text that names its blocking half."""
    for path in sorted(src.rglob("*.py")):
        if (mark := MARK.match(path.read_text(encoding="utf-8"))) is not None:
            yield Half(path, path.parent / mark[1], _given(mark))


def orphans(src: Path, known: Iterable[Half]) -> Iterator[str]:
    """Files that say they were made, and that nothing makes."""
    made = {half.target: half.source.name for half in known}
    for path in sorted(src.rglob("*.py")):
        if (mark := MADE.match(path.read_text(encoding="utf-8"))) is not None and made.get(path) != mark[1]:
            yield f"{path.name} says that it is made from {mark[1]}, which does not name it: delete it"


def tidy(text: str, path: Path) -> str:
    """Without what is no longer used or needs no block of its own, sorted and set as everything else is."""
    ruff = str(Path(sys.executable).parent / "ruff")
    for command in (
        ["check", "--select", "F401,I,RUF100,SIM117", "--fix", "--quiet", "--exit-zero"],
        ["format", "--quiet"],
    ):
        text = subprocess.run(
            [ruff, *command, "--stdin-filename", str(path), "-"],
            input=text, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return text


def made(half: Half, twins: Twins, used: set[str]) -> str:
    """The whole file that a pair's blocking half has to be."""
    source = half.source.read_text(encoding="utf-8")
    if twice := half.given.keys() & NAMES.keys():
        raise Refused(f"NAMES has {', '.join(sorted(twice))} already")
    ours: set[str] = set()
    text = turned("\n" + source.partition("\n")[2], half.given, twins, ours).lstrip("\n")  # Lines keep their numbers.
    if unused := half.given.keys() - ours:
        raise Refused(f"unused: {', '.join(sorted(unused))}")
    used |= ours
    return tidy(HEADER.format(half.source.name) + text, half.target)


def same(old: str, new: str) -> bool:
    """Whether two texts are the same program under the same first line."""
    return old.partition("\n")[0] == new.partition("\n")[0] and ast.dump(ast.parse(old)) == ast.dump(ast.parse(new))


def work(src: Path, *, check: bool) -> list[str]:
    """Write every half, or only look; what is wrong, a line for each."""
    known = list(halves(src))
    twins = Twins.of(path.read_text(encoding="utf-8") for path in sorted(src.rglob("*.py")))
    used: set[str] = set()
    wrong = list(orphans(src, known))
    for half in known:
        try:
            text = made(half, twins, used)
        except (Refused, SyntaxError) as no:
            wrong.append(f"{half.source.relative_to(src)}: {no}")
            continue
        old = half.target.read_text(encoding="utf-8") if half.target.exists() else ""
        if old and MADE.match(old) is None:
            wrong.append(f"{half.target.relative_to(src)} is written by hand: delete it first")
        elif not check and old != text:
            half.target.write_text(text, encoding="utf-8")
            print("wrote", half.target.relative_to(src))
        elif check and not same(old, text):
            wrong.append(f"{half.target.relative_to(src)} is not what its awaiting half makes of it: `make halves`")
    wrong += [f"NAMES has {name}, which no awaiting text uses" for name in sorted(NAMES.keys() - used)]
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Write the blocking half of every pair from its awaiting half.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if anything is old")
    wrong = work(ROOT / "src" / "onceward", check=parser.parse_args().check)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
