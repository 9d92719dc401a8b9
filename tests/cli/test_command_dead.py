"""`onceward dead`: looking, doing again, letting go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import server_stores as stores

from onceward import Gate, Retry
from onceward.gate import Sealed

pytestmark = pytest.mark.dose(1, of="kind")


@pytest.fixture(params=stores.wanted())
def kind(request: pytest.FixtureRequest) -> str:
    """Every command works on every store."""
    return str(request.param)


class TestLooking:
    """What is shown, and what is not."""

    def test_a_list_shows_what_was_given_up(self, given_up: Any, gate: Gate, run: Any) -> None:
        """
        One line each; the records beside them are not in it; nor is any key.
        """
        letter = given_up("charge:order-18", card="4111-1111")
        gate.run("charge:order-19", lambda: "done")

        ran = run("dead", "list")

        assert ran.code == 0
        heading, line = ran.out.splitlines()
        assert heading.split()[:4] == ["ID", "OF", "SCOPE", "OPERATION"]
        assert line.split()[:5] == [letter.digest, "operation", "live:acme", "charge", "attempts"]
        assert "ConnectionRefusedError" in line
        assert "order-18" not in ran.out

    def test_pages_go_on_where_the_last_one_ended(self, given_up: Any, run: Any) -> None:
        """
        With --limit and --after; scopes are chosen with --scope.
        """
        ids = sorted(given_up(f"charge:{number}").id for number in range(3))
        first = run("dead", "list", "--limit", "2", "--json").document
        rest = run("dead", "list", "--after", first["next"], "--json").document

        assert ids == [one["id"] for one in (*first["letters"], *rest["letters"])]
        assert rest["next"] is None
        assert run("dead", "list", "--scope", "live:other", "--json").document["letters"] == []
        assert run("dead", "list", "--scope", "live:other")[:2] == (0, "")

    def test_a_letter_is_shown_with_its_attempts_and_without_key_and_payload(self, given_up: Any, run: Any) -> None:
        """
        By digest or by scope and key, as text and as a document.
        """
        letter = given_up("charge:order-18", card="4111-1111")
        by_digest = run("dead", "show", letter.digest)
        by_key = run("dead", "show", "--scope", "live:acme", "--key", "charge:order-18")
        document = run("dead", "show", letter.id, "--json")

        assert (by_digest.code, by_key.code) == (0, 0)
        assert by_digest.out.replace(" ", "").splitlines()[:3] == by_key.out.replace(" ", "").splitlines()[:3]
        assert f"record       {letter.record}" in by_digest.out
        assert "payload      plain" in by_digest.out
        assert "connection refused" in by_digest.out
        assert (letter.fingerprint, "attempts", 1) == (
            document.document["fingerprint"],
            document.document["reason"],
            len(document.document["tries"]),
        )
        for shown in (by_digest.out, document.out):
            assert "4111" not in shown
            assert "order-18" not in shown

    def test_a_payload_is_shown_when_it_is_asked_for(self, given_up: Any, run: Any) -> None:
        """
        A plain one; a sealed one and one that was omitted stay what they are.
        """
        plain = run("dead", "show", given_up("charge:1", card="4111").digest, "--payload")
        document = run("dead", "show", given_up("charge:2", card="4111").digest, "--payload", "--json").document
        sealed = given_up("charge:3", payload=Sealed(Sealed.new_key()), card="4111")
        hidden = run("dead", "show", sealed.digest, "--payload")

        assert '"card": "4111"' in plain.out
        assert document["arguments"] == {"args": [], "kwargs": {"card": "4111"}}
        assert "there is no payload to show: it is sealed" in hidden.out
        assert "4111" not in hidden.out

    def test_stored_text_cannot_play_tricks(self, given_up: Any, run: Any) -> None:
        """
        Escape sequences and line ends in a message are shown, not performed.
        """
        letter = given_up(error=ConnectionRefusedError("\x1b[2J\nforged  line"))

        for typed in (["dead", "list"], ["dead", "show", letter.digest]):
            out = run(*typed).out
            assert "\x1b" not in out
            assert "\nforged" not in out

    def test_records_show_does_not_show_a_payload(self, given_up: Any, run: Any) -> None:
        """
        A letter is a record, too, and its payload stays inside.
        """
        letter = given_up(card="4111-1111")
        shown = run("records", "show", letter.id)
        document = run("records", "show", letter.id, "--json")

        assert (shown.code, document.code) == (0, 0)
        assert "dead/1" in shown.out
        assert "4111" not in shown.out + document.out


class TestDiscard:
    """Letting go."""

    def test_a_letter_is_discarded_with_a_yes(self, given_up: Any, run: Any) -> None:
        """
        Without one, nothing happens; afterwards it is gone.
        """
        letter = given_up()
        asked = run("dead", "discard", letter.digest)
        still = run("dead", "show", letter.digest)
        done = run("dead", "discard", letter.digest, "--yes", "--json")

        assert (2, "add --yes" in asked.err, 0) == (asked.code, True, still.code)
        assert (0, {"digest": letter.digest, "discarded": True}) == (done.code, done.document)
        assert run("dead", "show", letter.digest).code == 1
        assert run("dead", "discard", letter.digest, "--yes").code == 1


class TestRequeue:
    """Doing it again, with the app's handlers."""

    def test_a_requeue_runs_the_apps_handler(self, given_up: Any, shop: Any, gate: Gate, run: Any) -> None:
        """
        With the arguments that were kept; afterwards the letter is gone and the record has the answer.
        """
        shop("return order['amount'] * 2")
        letter = given_up(amount=21)

        ran = run("dead", "requeue", letter.digest, "--app", "shop:dead", "--json")

        assert (0, {"digest": letter.digest, "requeued": True}) == (ran.code, ran.document)
        assert gate.records.get("charge:order-18").result == 42
        assert gate.dead_letters().list() == ()

    def test_an_async_app_is_awaited(self, given_up: Any, shop: Any, gate: Gate, run: Any, kind: str) -> None:
        """
        The letters of an AsyncGate work the same; by scope and key.
        """
        shop("return order['amount'] * 2", gate="AsyncGate")
        given_up(amount=21)

        ran = run("dead", "requeue", "--scope", "live:acme", "--key", "charge:order-18", "--app", "shop:dead")

        assert (ran.code, "no tables" in ran.err) == (0, kind == "redis")
        assert len(ran.err.splitlines()) == (kind == "redis")
        assert gate.records.get("charge:order-18").result == 42

    def test_a_handler_that_fails_again_updates_the_letter(
        self, given_up: Any, shop: Any, gate: Gate, run: Any
    ) -> None:
        """
        Exit code 1, one line, made harmless.
        """
        shop("raise ConnectionRefusedError('still\\x1b[2J refused')")
        letter = given_up()

        ran = run("dead", "requeue", letter.digest, "--app", "shop:dead")

        assert (ran.code, ran.out) == (1, "")
        assert "charge failed again: ConnectionRefusedError: still\\x1b[2J refused" in ran.err
        assert gate.dead_letters().list()[0].requeues == 1

    def test_an_operation_in_doubt_is_refused_with_the_command(
        self, doubted: Any, given_up: Any, shop: Any, gate: Gate, run: Any
    ) -> None:
        """
        Exit code 3; the command that it prints decides it, and then the requeue goes through.
        """
        doubted("charge:order-18")
        letter = given_up(error=TimeoutError())
        shop()

        refused = run("dead", "requeue", letter.digest, "--app", "shop:dead")
        decided = run("records", "reconcile", letter.record, "--did-not-happen")

        assert (refused.code, decided.code) == (3, 0)
        assert f"onceward records reconcile {letter.record} --fence" in refused.err
        shop()
        assert run("dead", "requeue", letter.digest, "--app", "shop:dead").code == 0

    def test_a_call_without_a_key_needs_a_word_more(self, given_up: Any, shop: Any, run: Any) -> None:
        """
        That it did not happen.
        """
        letter = given_up(None, error=TimeoutError())
        shop()

        refused = run("dead", "requeue", letter.digest, "--app", "shop:dead")

        assert (refused.code, "--did-not-happen" in refused.err) == (3, True)
        shop()
        assert run("dead", "requeue", letter.digest, "--app", "shop:dead", "--did-not-happen").code == 0


class TestBadInput:
    """One line that says what to do; nothing is run."""

    @pytest.fixture
    def kind(self) -> str:
        """No store can change this."""
        return "sqlite"

    @pytest.mark.parametrize(
        ("app", "says"),
        [
            ("shop", "--app takes MODULE:NAME"),
            (":dead", "--app takes MODULE:NAME"),
            ("shopp:dead", "there is no module 'shopp' to import"),
            ("shop:letters", "shop has no 'letters'"),
            ("shop:something", "is a object; name what gate.dead_letters() gave you"),
            ("shop:gate", "is a Gate; name what"),
            ("broken:dead", "importing broken raised ZeroDivisionError: division by zero"),
            ("leaving:dead", "importing leaving raised SystemExit: 0"),
        ],
    )
    def test_an_app_that_is_none_is_refused(
        self, app: str, says: str, given_up: Any, shop: Any, folder: Path, run: Any
    ) -> None:
        """
        Exit code 2, and what to name instead.
        """
        letter = given_up()
        shop()
        (folder / "broken.py").write_text("1 / 0")
        (folder / "leaving.py").write_text("raise SystemExit(0)")

        ran = run("dead", "requeue", letter.digest, "--app", app)

        assert (ran.code, ran.out) == (2, "")
        assert says in ran.err
        assert ran.err.count("\n") == 1

    @pytest.mark.parametrize(
        ("typed", "code", "says"),
        [
            ("show", 2, "no dead letter was named"),
            ("show --scope live:acme", 2, "both --scope and --key"),
            ("show 0123456789ab", 1, "no dead letter whose id begins with 0123456789ab"),
            ("show --scope live:acme --key charge:none", 1, "no dead letter of that key"),
            ("show 01234 --key charge:none", 2, "but not both"),
            ("list --limit 0", 2, "from 1 to 10000"),
            ("requeue 0123456789ab", 1, "no dead letter whose id begins"),
            ("requeue 0123456789ab --app shop:dead", 1, "no dead letter whose id begins"),
            ("requeue --scope live:other --key charge:1 --app shop:dead", 2, "has the dead letters of live:acme"),
        ],
    )
    def test_a_letter_that_is_not_there_is_no(self, typed: str, code: int, says: str, shop: Any, run: Any) -> None:
        """
        And a question that means nothing is a usage error.
        """
        shop()

        ran = run("dead", *typed.split())

        assert (code, "") == (ran.code, ran.out)
        assert says in ran.err

    def test_a_letter_without_handler_is_refused(self, gate: Gate, shop: Any, run: Any) -> None:
        """
        With the name that wants one.
        """
        dead = gate.dead_letters()

        def refund() -> None:
            raise ConnectionRefusedError

        with pytest.raises(ConnectionRefusedError):
            Retry(1, dead=dead, name="refund").bind(key="refund:1").call(refund)
        shop()

        ran = run("dead", "requeue", dead.list()[0].digest, "--app", "shop:dead")

        assert ran.code == 2
        assert "no handler is registered for 'refund' (registered: 'charge')" in ran.err

    def test_a_damaged_letter_is_told_of(self, given_up: Any, gate: Gate, run: Any) -> None:
        """
        A list goes on without it and says so; showing it says what is wrong.
        """
        from onceward._core.record import Write

        letter = given_up()
        found = gate.store.load(bytes.fromhex(letter.id))
        carried = {name: value for name, value in found._asdict().items() if name in Write._fields}  # type: ignore[union-attr]
        times = {"rise": False, "lease": None, "replay": None, "forget": 10**12}
        gate.store.put(Write(**carried | times | {"version": b"!" * 16, "result": b"{"}), letter.version)

        assert "1 cannot be read" in run("dead", "list").err
        assert run("dead", "show", letter.digest).code == 2


def test_the_real_command_finds_an_app_where_it_stands(
    given_up: Any, shop: Any, gate: Gate, folder: Path, store: str, kind: str
) -> None:
    """
    Without PYTHONPATH, in a process of its own, on every store: it ends by itself, and cleanly. On Redis, which has no
    tables for the decision log, it says so once, and the decision is logged where it is seen: intent and outcome.
    """
    letter = given_up(amount=21)
    shop("return order['amount'] * 2")
    command = Path(sys.executable).parent / "onceward"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PYTEST"))}

    done = subprocess.run(
        [str(command), "dead", "requeue", letter.digest, "--app", "shop:dead"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env=kept,
    )

    told = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, f"{letter.digest} requeued, and discarded\n")
    assert len(told) == (3 if kind == "redis" else 0), told
    assert [json.loads(line)["decision"] for line in told[1:]] == ["letter.requeue"] * (2 if kind == "redis" else 0)
    assert gate.records.get("charge:order-18").result == 42
