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
        ("x = cast('AsyncThing', y)\n", "x = cast('Thing', y)\n"),
        ("x = 'AsyncThing'\n", "x = 'AsyncThing'\n"),
        ("x = 'give it an `AsyncThing`'\n", "x = 'give it a `Thing`'\n"),
        ("# AsyncThing is an `AsyncThing`\n", "# AsyncThing is a `Thing`\n"),
        ("f()  # of no colour\n", "f()  \n"),
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


@pytest.mark.fault("a-blocking-twin-is-not-refused")
@pytest.mark.parametrize(
    "text",
    [
        "from onceward.a import Store\n\ndef f(x: Store): ...\n",
        "from onceward.a import join\n\nasync def f(): return join(1)\n",
        "async def f(breaker): breaker.admit()\n",
        "async def f(breaker):\n    if breaker.admit().ok: await g()\n",
    ],
)
def test_a_blocking_name_with_an_awaiting_twin_is_refused(text: str) -> None:
    """
    The awaiting text that calls a breaker's `admit` blocks its event loop, and no generation would tell.
    """
    source = [
        "class Store: ...\nclass AsyncStore: ...\ndef join(): ...\ndef join_async(): ...\n",
        "class Breaker:\n    def admit(self): ...\n    async def aadmit(self): ...\n",
    ]

    with pytest.raises(halves.Refused, match="blocks, and has"):
        halves.turned(text, {}, halves.Twins.of(source), set())


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
    ],
)
def test_what_only_looks_like_a_blocking_twin_is_not_refused(text: str) -> None:
    """
    Another package's name, what is awaited, what is said to be another thing, and the blocking side of a branch.
    """
    source = [
        "class Store: ...\nclass AsyncStore: ...\n",
        "class B:\n    def admit(self): ...\n    async def aadmit(self): ...\n",
    ]

    made = halves.turned(text, {"aadmit": "admit"}, halves.Twins.of(source), set())

    assert "await" not in made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = asyncio.sleep(1)\n", "still says asyncio"),
        ("def f(x): return isawaitable(x)\n", "still says isawaitable"),
        ("if AWAITS and x:\n    f()\n", "still says AWAITS"),
        ("if x:\n    f()\nelif AWAITS:\n    g()\n", "not as an elif"),
        ("class C:\n    def f(self): ...\n    async def f_async(self): ...\n", "two become one: f"),
        ("class AsyncC: ...\nclass C: ...\n", "two become one: C"),
        ("def helper(): ...\n", "helper has no colour"),
        ("class Data:\n    x: int\n", "Data has no colour"),
        ("x = f'{await g()}'\n", "before the f-string"),
        ("x = f'{AsyncThing}'\n", "before the f-string"),
    ],
)
def test_what_cannot_be_turned_is_refused(text: str, why: str) -> None:
    """
    Refused with the reason, and never guessed.
    """
    with pytest.raises(halves.Refused, match=why):
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
    A made file without its source, a rule of a file's own and a rule for all that nothing uses.
    """
    monkeypatch.setattr(halves, "NAMES", {"aclose": "close"})
    src = package(
        tmp_path,
        a="# blocking half: b.py; afirst=first\nasync def f(): ...\n",
        c=halves.HEADER.format("gone.py"),
    )

    wrong = halves.work(src, check=True)

    assert wrong == [
        "c.py says that it is made from gone.py, which does not name it: delete it",
        "a.py: unused: afirst",
        "NAMES has aclose, which no awaiting text uses",
    ]
