"""
The questions of `make compare`, asked of us: real kills, a real PostgreSQL, nothing installed.

And of a peer that is planted: what doubles is reported as doubling.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import postgres

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = sorted({path.stem for path in (ROOT / "compare" / "questions").glob("[!_]*.py")} - {"cpu", "releases"})
"""All but two: one measures, and one asks pip's index and not us."""

DOUBLING = """
class Doubling:
    '''Runs the work every time.'''

    def __init__(self, work):
        self.call = work

    def close(self):
        pass


def make(place, work):
    return Doubling(work)


def retrying(work, *, attempts, total=None):
    def again():
        for attempt in range(attempts):
            try:
                return work()
            except Exception:
                if attempt == attempts - 1:
                    raise
    return again
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("COMPARE_PATIENCE", "0.2")
    yield


def _asked(name: str, peer: Any, folder: Path) -> Any:
    """One question to one peer; its answer."""
    from compare import results
    from compare.questions import questions
    from compare.servers import Servers

    question = questions()[name.replace("_", "-")]
    servers = Servers(folder / "servers")
    try:
        return question, results.answer_of(question, peer, servers, folder, {})
    finally:
        servers.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.dose(10)
def test_we_answer_every_question_right(name: str, tmp_path: Path) -> None:
    """
    What the page says of Onceward is so, in this version of the code.
    """
    from compare.peers import of_kind
    from compare.questions import questions

    question = questions()[name.replace("_", "-")]
    if question.server:
        postgres.needed()

    question, answer = _asked(name, of_kind(question.kind)[0], tmp_path)

    assert "seen" in answer, answer
    assert question.right(answer["seen"]), question.say(answer["seen"])


@pytest.mark.slow
@pytest.mark.fault("compare-an-effect-is-not-counted")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("killed_after", "two effects; the second caller got a result"),
        ("raises", "three effects for three calls; the last caller got `LostResponse`"),
        ("at_once", "400 effects for 100 keys, up to 4 for one key"),
        ("other_arguments", "three effects: it ran again, as another operation"),
        ("lost_response", "three effects; the caller got `RemoteDisconnected`"),
        ("stacked", "27 calls"),
    ],
)
def test_a_peer_that_doubles_is_reported_as_doubling(name: str, said: str, tmp_path: Path) -> None:
    """
    Control: a peer that protects nothing. The scripts count its effects, and `right` is false of it.
    """
    from compare.peers import Peer
    from compare.questions import questions

    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").touch()
    (tmp_path / "planted" / "doubling.py").write_text(DOUBLING)
    kind = questions()[name.replace("_", "-")].kind
    peer = Peer("Onceward", "planted.doubling", kind, stores=("sqlite",), environment={"PYTHONPATH": str(tmp_path)})

    question, answer = _asked(name, peer, tmp_path)

    assert question.say(answer["seen"]) == said
    assert not question.right(answer["seen"])


def test_a_wrong_answer_of_ours_fails_the_run() -> None:
    """
    `make compare` ends with 1 if an answer of ours is wrong or missing, and not if a peer's is.
    """
    from compare.questions import questions
    from compare.results import wrong

    good = {"seen": {"effects": 1, "second": {"raised": "InDoubt"}}}
    bad = {"seen": {"effects": 2, "second": {"returned": 1}}}

    assert wrong({"killed-after": {"Onceward": good, "idemkit": bad}}, questions()) == []
    assert len(wrong({"killed-after": {"Onceward": bad}}, questions())) == 1
    assert len(wrong({"killed-after": {"Onceward": {"missing": "no answer"}}}, questions())) == 1


def test_a_package_that_is_not_installed_is_said_to_be_missing(tmp_path: Path) -> None:
    """
    It is neither left out nor taken for an answer.
    """
    from compare import results
    from compare.peers import of_kind
    from compare.questions import questions

    idemkit = of_kind("function")[1]

    answer = results.answer_of(questions()["raises"], idemkit, None, tmp_path, {"idemkit": "cannot be installed: x"})  # type: ignore[arg-type]

    assert answer["missing"] == "idemkit cannot be installed: x"
    assert results.shown(questions()["raises"], answer).startswith("NOT ASKED")


def test_every_peer_is_pinned_and_has_an_adapter() -> None:
    """
    One version of each, and a file that says how it is called; Onceward first of its kind.
    """
    from compare.peers import PEERS, of_kind

    for peer in PEERS:
        assert (ROOT / "compare" / "adapters" / f"{peer.adapter}.py").exists()
        assert all(version[0].isdigit() for version in peer.needs.values())
        assert of_kind(peer.kind)[0].ours


def test_a_name_that_is_neither_is_refused() -> None:
    """
    With what there is to name; nothing is asked.
    """
    done = subprocess.run([sys.executable, "-m", "compare", "nonsense"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 2
    assert "neither a question nor a package: nonsense" in done.stderr


def test_lines_are_counted_between_the_two_comments() -> None:
    """
    Empty lines are not counted, and an adapter without the comments has no number.
    """
    from compare.questions.lines import counted

    assert counted("x\n  # what a user adds\n  a = 1\n\n  b = 2\n  # until here\n  c = 3\n") == 2
    with pytest.raises(ValueError, match="no lines"):
        counted("a = 1\n")


@pytest.mark.parametrize("stored", [b"\x80\x04N.", "gAROLg=="])
def test_a_stored_pickle_is_recognised(stored: Any) -> None:
    """
    As bytes, and in base64; JSON is none.
    """
    from compare.questions.unpickled import pickled

    assert pickled(stored) == b"\x80\x04N."
    assert pickled('{"charge": 1}') is None
    assert pickled(7) is None
