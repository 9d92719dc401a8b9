"""An HTTP answer as a result: its bytes are fixed, and what is read back is checked as if a stranger had written it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import Gate, Reply
from onceward._core.codec import HTTP, Encoded, NotEncodable, decode, encode
from onceward._core.errors import NotReplayable, ResultInvalid
from onceward.cli import main

STORED = b'[201,[["content-type","application/json"],["location","/caf\xc3\xa9"]]]\n{"id":7}\n'
ANSWER = Reply(201, (("content-type", "application/json"), ("location", "/caf\xe9")), b'{"id":7}\n')

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12)
VALUES = st.text([chr(code) for code in (9, *range(0x20, 0x7F), *range(0x80, 0x100))], max_size=20)
REPLIES = st.builds(
    Reply, st.integers(100, 999), st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple), st.binary(max_size=60)
)


def test_the_stored_form_never_changes() -> None:
    """
    Golden: rows that were written by the version before are read by this one, byte for byte.
    """
    assert Encoded("http/1", STORED) == encode(ANSWER)
    assert decode(Encoded(HTTP, STORED)) == ANSWER


@given(REPLIES)
def test_an_answer_comes_back_as_it_was(reply: Reply) -> None:
    """
    Status, headers in their order, also those that occur twice, and any bytes as body.
    """
    assert reply == decode(encode(reply))


@pytest.mark.parametrize(
    "planted",
    [
        b'[200,[["x","a\\r\\nSet-Cookie: session=1"]]]\n',
        b'[200,[["x","a\\u0000"]]]\n',
        b'[200,[["x: y\\r\\nz","a"]]]\n',
        b'[200,[["","a"]]]\n',
        '[200,[["x","€"]]]\n'.encode(),
        b'[200,[["x","a","b"]]]\n',
        b'[200,[["x"]]]\n',
        b'[200,[["x",1]]]\n',
        b'[200,{"x":"a"}]\n',
        b'[200,[]]',
        b'[99,[]]\n',
        b'[1000,[]]\n',
        b'[true,[]]\n',
        b'[200.5,[]]\n',
        b'["200",[]]\n',
        b"[200]\n",
        b"\n",
        b"",
        b"[" * 100_000 + b"\n",
        b"\xff\n",
        b'[200,[],[]]\n',
    ],
)  # fmt: skip
def test_a_planted_answer_is_refused(planted: bytes) -> None:
    """
    Whoever can write to the store cannot put a line end into a header, nor anything else that is no answer.
    """
    with pytest.raises(ResultInvalid, match="look at the record"):
        decode(Encoded(HTTP, planted))


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, (("x", "a\nb"),)),
        Reply(200, (("x", "€"),)),
        Reply(200, (("bad name", "a"),)),
        Reply(200, (("x", 1),)),  # type: ignore[arg-type]
        Reply(200, 7),  # type: ignore[arg-type]
        Reply(200, ("x",)),  # type: ignore[arg-type]
        Reply(42),
        Reply(True),
        Reply(200, (), "text"),  # type: ignore[arg-type]
        Reply(200, (), bytearray(b"x")),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_could_not_be_read_back_is_not_stored(reply: Reply) -> None:
    """
    It has no stored form. Under a gate it has happened all the same, and does not run again.
    """
    with pytest.raises(NotEncodable):
        encode(reply)
    with Gate("memory://", scope="test:acme") as gate:
        outcome = gate.call("k", lambda: reply)
        with pytest.raises(NotReplayable):
            gate.call("k", lambda: pytest.fail("it ran again"))

    assert (reply, False) == (outcome.value, outcome.replayable)


class TestShowingOne:
    """`onceward records show`."""

    def shown(self, reply: Reply, folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, *more: str) -> str:
        url = f"sqlite:///{folder / 'shop.db'}"
        with Gate(url, scope="test:acme") as gate:
            gate.call("k", lambda: reply, name="POST /charges")
            digest = next(iter(gate.records.list())).digest
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        assert main(["records", "show", digest, "--store", url, *more]) == 0
        return str(capsys.readouterr().out)

    def test_status_headers_and_body_are_shown(self, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
        """
        As what they are, and not as a text that holds them.
        """
        shown = self.shown(ANSWER, tmp_path, capsys, monkeypatch)

        result = json.loads(shown[shown.index("{") :])
        assert result["status"] == 201
        assert result["headers"] == ["content-type: application/json", "location: /caf\xe9"]
        assert (result["body"], result["bodyBytes"]) == ('{"id":7}\n', 9)

    def test_a_long_body_is_cut_for_people_and_whole_for_programs(
        self, tmp_path: Path, capsys: Any, monkeypatch: Any
    ) -> None:
        """
        Half a megabyte of somebody's answer is no use on a screen.
        """
        reply = Reply(200, (), b"x" * 5_000)

        people = self.shown(reply, tmp_path, capsys, monkeypatch)
        programs = json.loads(self.shown(reply, tmp_path, capsys, monkeypatch, "--json"))

        assert "x" * 2_000 + "…" in people or "x" * 2_000 + "\\u2026" in people
        assert "x" * 2_001 not in people
        assert programs["result"]["body"] == "x" * 5_000

    def test_a_body_that_is_no_text_is_in_base64(self, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
        """
        A picture does not reach the terminal.
        """
        programs = json.loads(self.shown(Reply(200, (), b"\xff\x00"), tmp_path, capsys, monkeypatch, "--json"))

        assert programs["result"]["bodyInBase64"] == "/wA="
