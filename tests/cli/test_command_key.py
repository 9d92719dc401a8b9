"""`onceward key`: making keys, and looking at them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onceward import derive
from onceward.keys import derive_colon, input_hash

CALL = ["--worker", "w-1", "--run", "r-9", "--turn", "3", "--tool", "charge"]


class TestDerive:
    """The same keys as in Python."""

    def test_the_key_is_the_one_that_python_derives(self, run: Any) -> None:
        """
        A shell script and a program agree on the key of a call.
        """
        ran = run("key", "derive", *CALL, "--input", '{"b": 2, "a": 1}')

        expected = derive(worker="w-1", run="r-9", turn=3, tool="charge", input={"a": 1, "b": 2})
        assert ran == (0, f"{expected}\n", "")

    def test_the_older_form_takes_its_own_names(self, run: Any) -> None:
        """
        Either the input, or the hash of it that a table already holds.
        """
        fields = ["--worker-id", "w-1", "--run-id", "r-9", "--turn-seq", "3", "--tool-name", "charge"]
        hashed = input_hash({"a": 1})
        expected = derive_colon(
            worker_id="w-1", run_id="r-9", turn_seq=3, tool_name="charge", canonical_input_hash=hashed
        )

        by_input = run("key", "derive", "--recipe", "colon", *fields, "--input", '{"a": 1}')
        by_hash = run("key", "derive", "--recipe", "colon", *fields, "--canonical-input-hash", hashed, "--json")

        assert by_input.out == f"{expected}\n"
        assert by_hash.document == {"key": expected, "recipe": "colon"}

    def test_the_input_may_come_from_a_file_or_a_pipe(self, folder: Any, run: Any) -> None:
        """
        All three are the same input.
        """
        (folder / "call.json").write_text('{"a": 1}')

        keys = {
            run("key", "derive", *CALL, "--input", '{"a":1}').out,
            run("key", "derive", *CALL, "--input", "@call.json").out,
            run("key", "derive", *CALL, "--input", "-", stdin=b'{"a": 1}\n').out,
        }

        assert len(keys) == 1

    @pytest.mark.parametrize(
        ("typed", "says"),
        [
            ([*CALL, "--input", "{"], "the text is not JSON"),
            ([*CALL, "--input", '{"a":1,"a":2}'], "twice"),
            ([*CALL, "--input", "NaN"], "NaN"),
            ([*CALL, "--input", "@nowhere.json"], "cannot read 'nowhere.json': No such file"),
            ([*CALL, "--input", "@"], "cannot read '.': Is a directory"),
            ([*CALL, "--input", "@a\0b"], "not a file name"),
            ([*CALL, "--canonical-input-hash", "ab"], "goes with --recipe colon"),
            ([*CALL], "one of the arguments --input --canonical-input-hash is required"),
            ([*CALL[2:], "--input", "1"], "required: --worker"),
            (["--worker", "", *CALL[2:], "--input", "1"], "worker is empty"),
            ([*CALL, "--turn", "-1", "--input", "1"], "count turns from 0"),
            ([*CALL, "--recipe", "colon", "--worker", "a:b", "--input", "1"], "colon"),
        ],
    )
    def test_bad_input_is_refused_with_what_is_wrong(self, typed: list[str], says: str, folder: Any, run: Any) -> None:
        """
        Exit code 2, one line, no key.
        """
        ran = run("key", "derive", *typed)

        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert ran.err.startswith("onceward: ")
        assert says in ran.err


def test_a_minted_key_is_a_new_uuid(run: Any) -> None:
    """
    Never the same twice.
    """
    first, second = run("key", "mint"), run("key", "mint", "--json").document["key"]

    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n", first.out)
    assert first.out.strip() != second


class TestExplain:
    """What can be said about a key without showing it."""

    def test_a_good_key_is_allowed_and_has_no_findings(self, run: Any) -> None:
        """
        Exit code 0.
        """
        ran = run("key", "explain", "charge:order-17", "--json")

        assert ran.code == 0
        assert {
            "length": 15,
            "limit": 255,
            "allowed": True,
            "problem": None,
            "digest": ran.document["digest"],
            "findings": [],
        } == ran.document

    @pytest.mark.parametrize(
        ("key", "code"),
        [("charge:bob@example.com", "K4"), ("charge:1699999999", "K1"), ("user-7", "K2"), ("x:" + "y" * 220, "K5")],
    )
    def test_a_finding_makes_the_answer_no(self, key: str, code: str, run: Any) -> None:
        """
        Exit code 1, the finding with its advice; the key itself is nowhere in the output.
        """
        text, found = run("key", "explain", key), run("key", "explain", key, "--json")

        assert (text.code, found.code) == (1, 1)
        assert code in [finding["code"] for finding in found.document["findings"]]
        assert all(finding["advice"] in text.out for finding in found.document["findings"])
        assert key not in text.out + text.err + found.out + found.err

    def test_a_key_that_is_not_allowed_says_why(self, run: Any) -> None:
        """
        Also if it comes through a pipe, where it stays out of the shell's history.
        """
        ran = run("key", "explain", "-", stdin=b"with a blank\n")

        assert ran.code == 1
        assert "no: the key has spaces (12 characters" in ran.out

    def test_a_recipe_is_judged_by_its_ingredients(self, run: Any) -> None:
        """
        A good one names its fields; one with a time in it could only make bad keys.
        """
        good = run("key", "explain", "--recipe", "charge:{order_id}", "--json")
        bad = run("key", "explain", "--recipe", "charge:{timestamp}", "--json")

        assert (good.code, good.document["fields"], good.document["findings"]) == (0, ["order_id"], [])
        assert (
            bad.code,
            bad.document["allowed"],
            [finding["code"] for finding in bad.document["findings"]],
        ) == (1, False, ["K1"])
