"""The blocking half of every pair is what its awaiting half makes of it, and the tool refuses what it cannot turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from halving import ROOT, halves, turned


@pytest.mark.fault(
    "a-half-is-edited-by-hand",
    "an-awaiting-half-is-changed-alone",
    "a-first-attempt-asks-its-breaker-by-blocking",
    "an-awaiting-policy-asks-its-breaker-by-blocking",
)
def test_every_half_is_up_to_date() -> None:
    """
    `make halves` would change no program, no made file has lost its source, and every rule is used.
    """
    wrong = halves.work(ROOT / "src" / "onceward", check=True)

    assert wrong == []


@pytest.mark.fault("a-thread-calls-what-a-lambda-gives")
@pytest.mark.parametrize(
    ("awaiting", "blocking"),
    [
        ("async def f():\n    return await g()\n", "def f():\n    return g()\n"),
        ("x = (await g()).answer  # why\n", "x = g().answer  # why\n"),
        ("x = f(await g())[0]\n", "x = f(g())[0]\n"),
        ("async with AsyncThing() as x: ...\n", "with Thing() as x: ...\n"),
        ("xs = [x async for x in y]\n", "xs = [x for x in y]\n"),
        ("from m import join_async, _AsyncWay\n", "from m import join, _Way\n"),
        ("def f() -> Awaitable[dict[str, int]]: ...\n", "def f() -> dict[str, int]: ...\n"),
        ("def f() -> Coroutine[Any, Any, int]: ...\n", "def f() -> int: ...\n"),
        ("x = await asyncio.to_thread(f, 1, *a, b=2, **c)\n", "x = f(1, *a, b=2, **c)\n"),
        ("x = await asyncio.to_thread(lambda: y)\n", "x = (lambda: y)()\n"),
        ("x = await asyncio.to_thread(f or g, 1)\n", "x = (f or g)(1)\n"),
        ("x = {k: v async for k, v in y if await v}\n", "x = {k: v for k, v in y if v}\n"),
        ("async with a() as x, b() as y: await f(x)\n", "with a() as x, b() as y: f(x)\n"),
        ("if (x := await f()) and not await g(): ...\n", "if (x := f()) and not g(): ...\n"),
        ("x = '\u2028', await f(), await g()\n", "x = '\u2028', f(), g()\n"),
        ("x = cast('AsyncThing', y)\n", "x = cast('Thing', y)\n"),
        ("x = 'AsyncThing'\n", "x = 'AsyncThing'\n"),
        ("x = 'give it an `AsyncThing`'\n", "x = 'give it a `Thing`'\n"),
        ("# AsyncThing is an `AsyncThing`\n", "# AsyncThing is a `Thing`\n"),
        ("f(awaits=AWAITS)\n", "f(awaits=False)\n"),
        ("x = 1 if AWAITS else AsyncThing\n", "x = Thing\n"),
        ("if AWAITS:\n    await f()\n", ""),
        ("if not AWAITS:\n    f()  # stays\n", "f()  # stays\n"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_line(awaiting: str, blocking: str) -> None:
    """
    Each rule by itself: comments and layout stay, and strings change only where they are code.
    """
    text = turned(awaiting)

    assert text == blocking


def test_the_blocking_side_of_a_branch_is_kept_word_for_word() -> None:
    """
    Its names are the blocking text's own, so no rule touches them.
    """
    text = turned(
        "def f():\n    if AWAITS:\n        await a()\n    else:\n        # Why.\n        b(AsyncName)\n    c()\n"
    )

    assert text == "def f():\n    # Why.\n    b(AsyncName)\n    c()\n"


def test_a_text_of_several_lines_in_a_branch_is_not_moved() -> None:
    """
    The lines around it move to the left, and what the program says stays what it was.
    """
    text = turned("if AWAITS:\n    a()\nelse:\n    b('''\nSay\n      so.\n''')\n    c()\n")

    assert text == "b('''\nSay\n      so.\n''')\nc()\n"


def test_docstrings_change_where_they_show_code() -> None:
    """
    Names between backticks and examples further in are code; what is said around them is prose.
    """
    text = turned('"""\nThe AsyncGate, `await gate.run()`:\n\n    async with AsyncGate() as gate:\n"""\n')

    assert text == '"""\nThe AsyncGate, `gate.run()`:\n\n    with Gate() as gate:\n"""\n'


def test_a_name_of_a_files_own() -> None:
    """
    A name that no pattern turns is given in the file's first line.
    """
    text = turned("await x.afirst()\n", afirst="first")

    assert text == "x.first()\n"


WORLD = halves.Twins.of(
    [
        "class Store: ...\nclass AsyncStore: ...\ndef join(): ...\ndef join_async(): ...\n",
        "class Breaker:\n    def admit(self): ...\n    async def aadmit(self): ...\n",
        "class Courier:\n    def ask(self): ...\n    async def aask(self): ...\n",
        "class Called:\n    ask: str\n",
        "def open_store(): ...\ndef open_async_store(): ...\n",
        "# blocking half: b.py\nclass Teller:\n    async def tell_async(self): ...\n",
    ]
)
"""A package in which some things have twins."""


@pytest.mark.fault("a-blocking-twin-is-not-refused")
@pytest.mark.parametrize(
    "text",
    [
        "from onceward.a import Store\n\ndef f(x: Store): ...\n",
        "from onceward.a import join\n\nasync def f(): return join(1)\n",
        "from onceward.a import join\n\n@join\nasync def f(): ...\n",
        "from onceward.a import Store\n\nasync def f(x):\n    match x:\n        case Store(): ...\n",
        "from onceward.a import open_store\n\nasync def f(): return open_store()\n",
        "from onceward.a import join as other\n\nasync def f(): return other(1)\n",
        "from onceward import a\n\nasync def f(): return a.join(1)\n",
        "import onceward.a\n\nasync def f(): return onceward.a.join(1)\n",
        "import onceward.a as a\n\nasync def f(x: a.Store): ...\n",
        "from .a import join\n\nasync def f(): return join(1)\n",
        "async def f(breaker): breaker.admit()\n",
        "async def f(breaker):\n    if breaker.admit().ok: await g()\n",
        "async def f(self): return [one.admit() for one in self._breakers]\n",
        "async def f(self):\n    if x := self._breaker.admit(): return x\n",
        "async def f(breaker):\n    def inner(): return breaker.admit()\n    return inner()\n",
        "async def f(breaker): return f'{breaker.admit()}'\n",
        "async def f(courier): courier.ask()\n",
        "async def f(teller): teller.tell()\n",
        "class C:\n    async def aadmit(self): return self.admit()\n",
    ],
)
def test_a_blocking_name_with_an_awaiting_twin_is_refused(text: str) -> None:
    """
    The awaiting text that calls a breaker's `admit` blocks its event loop, and no generation would tell.
    """
    with pytest.raises(halves.Refused, match="blocks, and has"):
        halves.turned(text, {"aadmit": "admit"}, WORLD, set())


@pytest.mark.fault("a-method-that-is-handed-on-is-not-seen")
@pytest.mark.parametrize(
    "text",
    [
        "async def f(breaker):\n    ask = breaker.admit\n    return ask()\n",
        "async def f(breaker): return g(partial(breaker.admit))\n",
    ],
)
def test_a_blocking_method_that_is_handed_on_is_refused(text: str) -> None:
    """
    Under another name, or by whoever it is given to, it blocks all the same.
    """
    with pytest.raises(halves.Refused, match="has the twin aadmit"):
        halves.turned(text, {}, WORLD, set())


@pytest.mark.fault("a-twin-in-the-other-half-is-not-known")
def test_a_twin_in_the_other_half_of_a_class_is_refused() -> None:
    """
    `class Breaker(BlockingBreaker, AwaitingBreaker)`: `aadmit` is in one file, and `admit` is made of it in another.
    """
    source = ["# blocking half: b.py; aadmit=admit\nclass AwaitingBreaker:\n    async def aadmit(self): ...\n"]

    with pytest.raises(halves.Refused, match="has the twin aadmit"):
        halves.turned("async def f(breaker): breaker.admit()\n", {}, halves.Twins.of(source), set())


@pytest.mark.parametrize(
    "text",
    [
        "from collections.abc import Store\n\nasync def f(x: Store): ...\n",
        "async def f(gate): await gate.admit()\n",
        "async def f(door): door.admit()  # of no colour\n",
        "async def f(x):\n    if AWAITS:\n        await x.aadmit()\n    else:\n        x.admit()\n",
        "async def f(x): return await x.aadmit() if AWAITS else x.admit()\n",
        "async def f(x): return await asyncio.to_thread(x.admit)\n",
        "async def f(called): return await g(called.ask)\n",
        "async def f(x): return ', '.join(await x)\n",
    ],
)
def test_what_only_looks_like_a_blocking_twin_is_not_refused(text: str) -> None:
    """
    Another package's name, what is awaited, what is said to be another thing, the blocking side of a branch, what a
    thread calls, and data.
    """
    made = halves.turned(text, {"aadmit": "admit"}, WORLD, set())

    assert "await" not in made
    assert halves.EXEMPT not in made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = asyncio.sleep(1)\n", "still says asyncio"),
        ("from asyncio import sleep\n\nasync def f(): await sleep(1)\n", "by these names"),
        ("import asyncio as loops\n\nasync def f(): await loops.sleep(1)\n", "by these names"),
        ("from c import AWAITS as A\n\nasync def f(): return A\n", "by these names"),
        ("def f(x): return isawaitable(x)\n", "still says isawaitable"),
        ("def f(x): return inspect.isawaitable(x)\n", "still says isawaitable"),
        ("def f(x) -> abc.Awaitable[int]: ...\n", "still says Awaitable"),
        ("async def f(x): return await anext(x)\n", "still says anext"),
        ("async def f(x): await x.enter_async_context(1)\n", "still says enter_async_context"),
        ("async def f(x): raise StopAsyncIteration\n", "still says StopAsyncIteration"),
        ("x = cast('Awaitable[AsyncThing]', y)\n", "no type of the blocking text"),
        ("if AWAITS and x:\n    f()\n", "still says AWAITS"),
        ("if colour.AWAITS:\n    f()\n", "still says AWAITS"),
        ("if x:\n    f()\nelif AWAITS:\n    g()\n", "without elif"),
        ("if x:\n    f()\nif AWAITS:\n    g()\nelif y:\n    h()\n", "without elif"),
        ("if not AWAITS: f()\n", "on lines of its own"),
        ("class C:\n    def f(self): ...\n    async def f_async(self): ...\n", "two become one: f"),
        ("class AsyncC: ...\nclass C: ...\n", "two become one: C"),
        ("class AsyncC:\n    link: int\n    link_async: int\n", "two become one: link"),
        ("class C:\n    @a\n    def f(self): ...\n    @b\n    async def f_async(self): ...\n", "two become one: f"),
        ("async def f(x, x_async): ...\n", "duplicate argument"),
        ("def helper(): ...\n", "helper has no colour"),
        ("class Data:\n    x: int\n", "Data has no colour"),
        ("x = f'{await g()}'\n", "before the f-string"),
        ("x = f'{AsyncThing}'\n", "before the f-string"),
        ("x = f'{y} is no `AsyncThing`'\n", "before the f-string"),
        ("async def f(y): return f'{[x async for x in y]}'\n", "asynchronous comprehension"),
        ("f()  # of no colour\n", "is not needed"),
    ],
)
def test_what_cannot_be_turned_is_refused(text: str, why: str) -> None:
    """
    Refused with the reason, and never guessed.
    """
    with pytest.raises((halves.Refused, SyntaxError), match=why):
        turned(text)


@pytest.mark.fault("two-nested-functions-become-one")
def test_two_nested_functions_do_not_become_one() -> None:
    """
    The second would quietly stand in for the first.
    """
    text = "async def f():\n    def g(): ...\n    async def g_async(): ...\n"

    with pytest.raises(halves.Refused, match="two become one: g"):
        turned(text)


def package(folder: Path, **files: str) -> Path:
    """A small package on disk."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_half_is_written_and_then_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Another layout of the same program is up to date, too; another program is not.
    """
    monkeypatch.setattr(halves, "NAMES", {})
    src = package(tmp_path, a="# blocking half: b.py\nasync def f(x):\n    return await x\n")

    assert halves.work(src, check=True) == ["b.py is not what its awaiting half makes of it: `make halves`"]
    assert halves.work(src, check=False) == []
    assert (src / "b.py").read_text().splitlines()[-2:] == ["def f(x):", "    return x"]
    made = (src / "b.py").read_text()
    (src / "b.py").write_text(made.replace("return x", "return (x)  # another layout"))
    assert halves.work(src, check=True) == []
    (src / "b.py").write_text(made.replace("return x", "return not x"))
    assert len(halves.work(src, check=True)) == 1


def test_orphans_and_unused_rules_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A made file without its source, a rule of a file's own and a rule for all that nothing uses, and one said twice.
    """
    monkeypatch.setattr(halves, "NAMES", {"aclose": "close"})
    src = package(
        tmp_path,
        a="# blocking half: b.py; afirst=first\nasync def f(): ...\n",
        c=halves.HEADER.format("gone.py"),
        d="# blocking half: e.py; aclose=close\nasync def f(x): await x.aclose()\n",
    )

    wrong = halves.work(src, check=True)

    assert wrong == [
        "c.py says that it is made from gone.py, which does not name it: delete it",
        "a.py: unused: afirst",
        "d.py: NAMES has aclose already",
        "NAMES has aclose, which no awaiting text uses",
    ]


def test_what_is_written_by_hand_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An awaiting text that names the wrong file destroys nobody's work.
    """
    monkeypatch.setattr(halves, "NAMES", {})
    src = package(tmp_path, a="# blocking half: b.py\nasync def f(): ...\n", b="# Mine.\n")

    wrong = halves.work(src, check=False)

    assert wrong == ["b.py is written by hand: delete it first"]
    assert (src / "b.py").read_text() == "# Mine.\n"
