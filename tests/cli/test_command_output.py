"""Nothing stored can play tricks on a terminal, and what is printed can be read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from onceward import Gate
from onceward.cli.output import camel_case, json_text
from onceward.cli.text_tables import escape_invisible, format_facts, format_table, pretty_json, shorten

TRICKS = {
    "ANSI colour": "\x1b[31mred",
    "ANSI clear screen": "\x1b[2J",
    "C1 control": "\x9b31m",
    "title": "\x1b]0;title\x07",
    "CR LF": "a\r\nonceward: all is well",
    "backspace": "b\x08\x08",
    "DEL": "\x7f",
    "direction": "\u202egnp.exe",
    "isolate": "\u2066x\u2069",
    "zero width": "a\u200bb",
    "line separator": "a\u2028b",
    "tag": "\U000e0041",
}
ACTS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\U000e0041]")


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS.keys())
class TestStoredTextIsHarmless:
    """Whatever is stored comes out as escapes."""

    def test_in_a_failure_and_a_name(self, trick: str, doubted: Any, run: Any) -> None:
        """
        What a function raised, and what it was called, was written by others.
        """
        digest = doubted(message=trick, name=trick).id.hex()[:12]

        outputs = [
            run("records", "list"),
            run("records", "list", "--json"),
            run("records", "show", digest),
            run("records", "show", digest, "--json"),
        ]

        assert [hit for ran in outputs for hit in ACTS.findall(ran.out + ran.err)] == []
        assert len(outputs[0].out.splitlines()) == 2
        assert outputs[3].document["failure"] == f"RuntimeError: {trick}"

    def test_in_a_result(self, trick: str, gate: Gate, run: Any) -> None:
        """
        As text and as JSON; a program gets the value back unchanged.
        """
        gate.run("job:1", lambda: {trick: [trick]})
        name = ["--scope", "live:acme", "--key", "job:1"]

        text, document = run("records", "show", *name), run("records", "show", *name, "--json")

        assert ACTS.findall(text.out + document.out) == []
        assert {trick: [trick]} == document.document["result"]
        assert {trick: [trick]} == json.loads(text.out[text.out.index("{") :])

    def test_in_a_refusal(self, trick: str, doubted: Any, run: Any) -> None:
        """
        An error that names a stored operation is one line.
        """
        digest = doubted(name=trick).id.hex()[:12]
        run("records", "reconcile", digest, "--happened", "1")

        ran = run("records", "reconcile", digest, "--happened", "2")

        assert ran.code == 3
        assert ACTS.findall(ran.err) == []
        assert len(ran.err.splitlines()) == 1

    def test_in_what_was_typed(self, trick: str, store: str, run: Any) -> None:
        """
        A mistyped word is shown back, harmless.
        """
        ran = run("records", "list", "--state", trick)

        assert ran.code == 2
        assert ACTS.findall(ran.err) == []


class TestTables:
    """Columns line up, and wide cells give way in the middle."""

    def test_columns_are_aligned_and_numbers_stand_to_the_right(self) -> None:
        """
        No blanks at the ends of lines.
        """
        shown = format_table(("NAME", "COUNT", "NOTE"), [("a", 5, "x"), ("long name", 1200, None)])

        assert shown == "NAME       COUNT  NOTE\na              5  x\nlong name   1200"

    def test_a_wide_cell_is_shortened_in_the_middle(self) -> None:
        """
        Both ends of a key say what it is.
        """
        assert shorten("charge:" + "a" * 60 + ":2026") == "charge:aaaaaaaaaaaa…aaaaaaaaaaaaaaa:2026"
        assert len(shorten("x" * 300)) == 40
        assert shorten("x" * 40) == "x" * 40

    def test_facts_leave_out_what_is_not_known(self) -> None:
        """
        A missing time is no line, and no is a word.
        """
        assert format_facts([("a", 1), ("b", None), ("long", False)]) == "a     1\nlong  no"

    def test_plain_text_is_left_alone(self) -> None:
        """
        Letters of any language, and a backslash, are what they are.
        """
        assert escape_invisible("Zoë 東京 C:\\temp") == "Zoë 東京 C:\\temp"
        assert pretty_json("Zoë") == '"Zoë"'

    def test_a_terminal_that_cannot_show_a_character_gets_its_escape(
        self, gate: Gate, run: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Half an answer and a traceback would be worse.
        """
        import io
        import sys

        from onceward.cli import main

        gate.run("job:1", lambda: "Zoë")
        narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", narrow)

        code = main(["records", "show", "--scope", "live:acme", "--key", "job:1"])

        assert code == 0
        assert b'"Zo\\xeb"' in narrow.buffer.getvalue()


class TestDocuments:
    """JSON for programs."""

    def test_names_are_in_camel_case(self, gate: Gate, run: Any) -> None:
        """
        As everywhere on the wire.
        """
        gate.run("job:1", lambda: {"snake_case": "is the caller's own"})
        documents = [
            run("records", "show", "--scope", "live:acme", "--key", "job:1", "--json").document | {"result": None},
            run("records", "list", "--json").document["records"][0],
            run("contract", "--json").document,
            run("store", "check", "--json").document | {"records": {}},
        ]

        assert camel_case("lease_seconds_left") == "leaseSecondsLeft"
        assert [name for document in documents for name in _names(document) if "_" in name] == []

    def test_a_document_is_ascii(self) -> None:
        """
        Also DEL, which JSON itself lets through.
        """
        line = json_text({"a": "\x7fë\u202e"})

        assert line == '{\n  "a": "\\u007f\\u00eb\\u202e"\n}'
        assert json.loads(line) == {"a": "\x7fë\u202e"}


def _names(document: Any) -> list[str]:
    if isinstance(document, dict):
        return [*document, *(name for value in document.values() for name in _names(value))]
    return [name for value in document for name in _names(value)] if isinstance(document, list) else []
