"""The evidence bundle: what an edited one is found out by, and what is no bundle at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drill_helpers import drilled
from hypothesis import given
from hypothesis import strategies as st

from onceward.drill.bundle import BYTES_MAX, digest_of_bundle, faults_of, read_bundle
from onceward.drill.proofs import PROOFS
from onceward.errors import ConfigurationError


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    """The document of a drill of two proofs."""
    return drilled("retry", "changed-body", seed=7)


def edited(bundle: dict[str, Any], edit: Callable[[dict[str, Any]], object], *, seal: bool) -> list[str]:
    """What is found wrong with a bundle after an edit, with the digest made anew or as it was."""
    other = copy.deepcopy(bundle)
    edit(other)
    if seal:
        other["digest"] = digest_of_bundle(other)
    return faults_of(other, PROOFS)


def set_effects(bundle: dict[str, Any]) -> None:
    bundle["proofs"][0]["guarded"]["effects"] = 2


def hide_the_control(bundle: dict[str, Any]) -> None:
    bundle["proofs"][1]["control"]["effects"] = 1


def leave_out(bundle: dict[str, Any]) -> None:
    bundle["leftOut"] = {bundle["proofs"].pop()["name"]: "no time"}


class TestEdited:
    """A bundle that somebody has changed."""

    def test_as_it_was_made_nothing_is_wrong(self, bundle: dict[str, Any]) -> None:
        """
        Also after it was written and read.
        """
        assert faults_of(json.loads(json.dumps(bundle)), PROOFS) == []

    @pytest.mark.fault("drill-the-digest-is-not-looked-at")
    @pytest.mark.parametrize(
        "edit",
        [
            lambda bundle: bundle.update(seed=8),
            lambda bundle: bundle["versions"].update(onceward="9.9"),
            lambda bundle: bundle["proofs"][0].update(milliseconds=1),
            lambda bundle: bundle["proofs"][0]["guarded"].update(note=1),
        ],
    )
    def test_any_change_breaks_the_digest(self, bundle: dict[str, Any], edit: Any) -> None:
        """
        Whatever was changed, and be it a time.
        """
        found = edited(bundle, edit, seal=False)

        assert found == ["the digest does not match: the bundle was edited after it was made"]

    @pytest.mark.fault("drill-the-verdict-is-read")
    @pytest.mark.parametrize(
        ("edit", "says"),
        [
            (set_effects, "retry: the bundle says that it holds; its numbers say otherwise"),
            (hide_the_control, "changed-body: the bundle says that it holds; its numbers say otherwise"),
            (lambda bundle: bundle["proofs"][0].update(guarded={}), "its numbers say otherwise"),
            (lambda bundle: bundle["proofs"][0].update(broke="fire"), "its numbers say otherwise"),
            (
                lambda bundle: bundle.update(verdict="BLOCKED"),
                "the bundle gives the verdict as BLOCKED; the numbers say PERM",
            ),
            (leave_out, "changed-body: it was skipped, although it needs nothing that could be missing"),
            (lambda bundle: bundle["proofs"].pop(), "the chosen proofs are not those that were run"),
            (lambda bundle: bundle["proofs"][0].update(name="magic"), "this version knows no proof 'magic'"),
        ],
    )
    def test_with_the_digest_made_anew_the_numbers_tell(self, bundle: dict[str, Any], edit: Any, says: str) -> None:
        """
        The verdict is computed from the numbers again, and not read.
        """
        assert says in "\n".join(edited(bundle, edit, seal=True))

    def test_numbers_that_say_blocked_are_blocked_whatever_is_written(self, bundle: dict[str, Any]) -> None:
        """
        Both are said: the proof's own line, and the verdict.
        """
        faults = edited(bundle, set_effects, seal=True)

        assert faults[-1] == "the bundle gives the verdict as PERMITTED; the numbers say BLOCKED"


NUMBERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class TestNoBundle:
    """Files that are something else."""

    @given(NUMBERS)
    def test_no_document_makes_it_raise(self, document: Any) -> None:
        """
        Whatever JSON there is: something is wrong with it, in words.
        """
        shaped = {"format": "onceward-drill/1", "proofs": document, "leftOut": {}, "chosen": []}

        assert faults_of(document, PROOFS) != []
        assert faults_of(shaped, PROOFS) != []

    @given(NUMBERS)
    def test_no_numbers_make_it_raise(self, numbers: Any) -> None:
        """
        Numbers that are none prove nothing.
        """
        entries = [{"name": name, "guarded": numbers, "control": numbers, "holds": True} for name in PROOFS]
        document = {"format": "onceward-drill/1", "proofs": entries, "leftOut": {}, "chosen": list(PROOFS)}

        assert len(faults_of(document, PROOFS)) >= len(PROOFS)

    @pytest.mark.parametrize(
        ("raw", "says"),
        [
            (b"", "is not a drill bundle"),
            (b"{", "not JSON"),
            (b"\xff\xfe", "not UTF-8"),
            (b'{"a": 1, "a": 2}', "is not a drill bundle"),
            (b"[" * 10_000, "nested"),
            (b" " * (BYTES_MAX + 1), "more than"),
        ],
    )
    def test_a_file_that_is_none_is_refused(self, raw: bytes, says: str, tmp_path: Path) -> None:
        """
        In one sentence; a large one is not read to its end.
        """
        (tmp_path / "b.json").write_bytes(raw)

        with pytest.raises(ConfigurationError) as caught:
            read_bundle(tmp_path / "b.json")
        assert says in str(caught.value)

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        """
        With its name.
        """
        with pytest.raises(ConfigurationError, match=r"cannot read the bundle .*nowhere"):
            read_bundle(tmp_path / "nowhere")
