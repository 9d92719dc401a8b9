"""
Sentences from the text alone: nothing is imported, and what the text does not show is named.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from examining import write, write_documents

from onceward.doctor.code_reader import lint_settings, read_code
from onceward.doctor.key_sentences import KeySentence, sentences_of_code


def sentences(folder: Path) -> list[KeySentence]:
    """One for each key in a folder."""
    code = read_code([folder], lint_settings(None, folder), tests=True)
    return sentences_of_code(code.operations, code.keys)


@pytest.mark.requirement("D84")
@pytest.mark.fault("doctor-retention-is-not-said")
def test_a_declaration_is_described_as_its_contract_would(tmp_path: Path) -> None:
    """
    Numbers are worked out, the gate's own options count, and the operation and the connection are no arguments.
    """
    write(
        tmp_path,
        shop="""
        raise RuntimeError("this module is never imported")
        from datetime import timedelta
        from onceward import Gate

        DAY = 24 * 3600
        gate = Gate("sqlite:///shop.db", scope="live:shop", retain=2 * DAY, guarantee="keyed")
        other = Gate("sqlite:///shop.db", scope="live:shop", retain=timedelta(hours=6))

        by_order = lambda order_id: f"refund:{order_id}"

        @other.once(key=by_order, after_expiry="run", guarantee="probed", exclude=("note",))
        def refund(operation, order_id, amount, note):
            ...
        """,
    )

    (found,) = sentences(tmp_path)

    assert found.sentence == (
        "refund: one key per order_id, in the scope 'live:shop'; the result is kept 6 hours, and a retry after that "
        "runs again; the same key with another amount is refused; after a crash it is looked up first."
    )
    assert found.where.endswith("shop.py:13")
    assert found.unresolved == ()


def test_what_the_text_does_not_show_is_named(tmp_path: Path) -> None:
    """
    A gate from elsewhere, a number from the environment, a key that is made by a function of another module.
    """
    write(
        tmp_path,
        shop="""
        from settings import KEEP, gate, make_key

        @gate.once(key=make_key, retain=KEEP)
        def charge(order_id):
            ...
        """,
    )

    (found,) = sentences(tmp_path)

    assert set(found.unresolved) >= {"key", "retain", "scope"}
    assert found.sentence.startswith(
        "charge: a key that a function makes, in the scope of its gate; the result is kept as long as"
    )


@pytest.mark.requirement("D84")
@pytest.mark.fault("doctor-texts-of-keys-are-dropped")
def test_the_document_gets_a_sentence_for_each_key_that_it_makes(tmp_path: Path) -> None:
    """
    Also without a gate: whatever is given as a key is one.
    """
    found = {one.name: one.sentence for one in sentences(write_documents(tmp_path))}

    assert found == {
        "book_flight": "book_flight: one key per user_id, task_id and step_id.",
        "api.book": "api.book: one key per user_id, task_id and step_id.",
        "api.call": "api.call: one key per user_id, task_id and step.",
        "client.execute": "client.execute: one key per user_id, task_id and flight_id, under 'book_flight'.",
    }
