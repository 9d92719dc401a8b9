"""`onceward records`: looking, deciding, tidying."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
import server_stores as stores

from onceward import Gate, InDoubt
from onceward._core.record import Record

pytestmark = pytest.mark.dose(1, of="kind")


@pytest.fixture(params=stores.wanted())
def kind(request: pytest.FixtureRequest) -> str:
    """Every command works on every store."""
    return str(request.param)


def commands_in(message: str) -> list[list[str]]:
    """The commands that a message tells one to type."""
    return [shlex.split(line) for line in re.findall(r"(onceward records .*)$", message, re.MULTILINE)]


class TestWhatErrorsAdvise:
    """The commands in an error's text work as they are printed, with ONCEWARD_STORE set."""

    @pytest.fixture
    def advice(self, gate: Gate, doubted: Callable[..., Record]) -> list[list[str]]:
        doubted()
        with pytest.raises(InDoubt) as refused:
            gate.run("charge:order-17", lambda: "again")
        return commands_in(str(refused.value))

    def test_the_command_for_it_happened_settles_the_record(self, advice: Any, gate: Gate, run: Any) -> None:
        """
        With the result in place of the words RESULT AS JSON, every caller learns that result.
        """
        happened = [word.replace("RESULT AS JSON", '{"charge": "ch_1"}') for word in advice[0][1:]]

        ran = run(*happened)

        assert ran.code == 0
        assert gate.run("charge:order-17", lambda: pytest.fail("it ran again")) == {"charge": "ch_1"}

    def test_the_command_for_it_did_not_lets_it_run_again(self, advice: Any, gate: Gate, run: Any) -> None:
        """
        Copied letter by letter.
        """
        ran = run(*advice[1][1:])

        assert ran.code == 0
        assert gate.run("charge:order-17", lambda: "again") == "again"

    def test_a_result_left_as_printed_is_refused_with_advice(self, advice: Any, gate: Gate, run: Any) -> None:
        """
        The placeholder is not JSON; nothing is changed, and the message says how a text is written.
        """
        ran = run(*advice[0][1:])

        assert ran.code == 2
        assert "'\"done\"'" in ran.err
        assert gate.records.get("charge:order-17").state == "in_doubt"

    @pytest.mark.fault("cli-decide-without-a-fence")
    def test_what_show_prints_for_a_record_in_doubt_works_too(self, doubted: Any, gate: Gate, run: Any) -> None:
        """
        The ways out are printed under the record.
        """
        found = doubted()
        digest = found.id.hex()[:12]

        first, second = commands_in(run("records", "show", digest).out)

        fence = ["--fence", str(found.fence)]
        assert ["onceward", "records", "reconcile", digest, *fence, "--happened", "RESULT AS JSON"] == first
        assert ["onceward", "records", "reconcile", digest, *fence, "--did-not-happen"] == second
        assert run(*second[1:]).code == 0
        assert gate.records.get("charge:order-17").state == "released"


class TestReconcile:
    """Deciding by id, whatever kind of record it is."""

    def test_a_plans_step_is_reconciled_under_its_own_id(self, gate: Gate, run: Any) -> None:
        """
        A step is no key, and is found by its digest all the same.
        """
        plan = gate.plan("migrate-42")
        with pytest.raises(RuntimeError):
            plan.step("seed", self._raise)
        found = run("records", "list", "--state", "in_doubt", "--json").document["records"]

        ran = run("records", "reconcile", found[0]["digest"], "--happened", "17")

        assert (found[0]["kind"], ran.code) == ("step", 0)
        assert plan.step("seed", self._raise) == 17

    def test_a_lapsed_claim_is_reconciled(self, claimed: Any, gate: Gate, run: Any) -> None:
        """
        A holder that died is as much in doubt as one that raised.
        """
        claimed("charge:1", seconds_ago=120)

        ran = run("records", "reconcile", "--scope", "live:acme", "--key", "charge:1", "--happened", "null", "--json")

        assert (ran.code, ran.document["state"], ran.document["result"]) == (0, "settled", None)
        assert ran.document["codec"] == "json/1"

    def test_a_claim_that_is_held_is_refused(self, claimed: Any, gate: Gate, run: Any) -> None:
        """
        While a holder may still finish, nobody decides in its place; nothing is changed.
        """
        before = claimed("charge:1")

        ran = run("records", "release", before.id.hex(), "--yes")

        assert (ran.code, ran.out) == (3, "")
        assert "its lease has run out" in ran.err
        assert before.version == gate.store.load(before.id).version

    def test_deciding_again_with_the_same_answer_does_no_harm(self, doubted: Any, run: Any) -> None:
        """
        With another answer it is refused: the first one stands.
        """
        digest = doubted().id.hex()[:12]
        answers = ["1", "1", "2"]

        codes = [run("records", "reconcile", digest, "--happened", answer).code for answer in answers]

        assert codes == [0, 0, 3]
        assert run("records", "release", digest, "--yes").code == 3

    def test_releasing_needs_a_yes(self, doubted: Any, gate: Gate, run: Any) -> None:
        """
        Releasing declares something, so it must be said; again does no harm.
        """
        digest = doubted().id.hex()[:12]

        codes = [run("records", "release", digest, *yes).code for yes in ([], ["--yes"], ["--yes"])]

        assert codes == [2, 0, 0]
        assert gate.records.get("charge:order-17").state == "released"

    def test_the_result_may_come_from_a_file_or_a_pipe(self, doubted: Any, folder: Any, run: Any) -> None:
        """
        A large result does not fit a command line.
        """
        (folder / "result.json").write_text('{"from": "file"}')
        first, second = (doubted(key).id.hex() for key in ("charge:1", "charge:2"))

        from_file = run("records", "reconcile", first, "--happened", "@result.json", "--json")
        from_pipe = run("records", "reconcile", second, "--happened", "-", "--json", stdin=b'{"from": "pipe"}\n')

        assert [from_file.document["result"], from_pipe.document["result"]] == [{"from": "file"}, {"from": "pipe"}]

    def test_a_result_beyond_the_limit_is_refused(self, doubted: Any, run: Any) -> None:
        """
        What a gate would not store, an operator does not either.
        """
        digest = doubted().id.hex()

        ran = run("records", "reconcile", digest, "--happened", "-", stdin=b'"' + b"x" * 1_048_576 + b'"')

        assert ran.code == 2
        assert "1,048,576 bytes" in ran.err

    def test_a_result_too_deep_to_store_is_refused(self, doubted: Any, run: Any) -> None:
        """
        Readable is not yet storable: an error, not a traceback.
        """
        digest = doubted().id.hex()

        ran = run("records", "reconcile", digest, "--happened", "[" * 200 + "]" * 200)

        assert ran.code == 2
        assert "nests deeper than 128" in ran.err

    def test_the_retention_may_be_said(self, doubted: Any, run: Any) -> None:
        """
        The record does not know on which terms its operation was declared; 24 hours otherwise.
        """
        first, second = (doubted(key).id.hex() for key in ("charge:1", "charge:2"))

        default = run("records", "reconcile", first, "--happened", "1", "--json").document
        longer = run("records", "reconcile", second, "--happened", "1", "--retain", "604800", "--json").document

        assert [round(one["replaySecondsLeft"]) for one in (default, longer)] == [86_400, 604_800]

    @staticmethod
    def _raise() -> None:
        raise RuntimeError("connection reset")


class TestList:
    """Pages of records, for people and for programs."""

    def test_states_are_shown_as_derived(self, gate_at: Any, claimed: Any, doubted: Any, run: Any) -> None:
        """
        A dead holder's blind claim is in doubt, a repeatable one has lapsed, an old answer has expired.
        """
        gate_at().run("fresh:1", lambda: 1)
        gate_at(2 * 86_400).run("expired:1", lambda: 1)
        gate_at(40 * 86_400).run("gone:1", lambda: 1)
        claimed("held:1")
        claimed("dead:1", seconds_ago=120)
        claimed("dead:2", seconds_ago=120, guarantee="repeatable")
        doubted("doubted:1")

        found = {
            state: sorted(one["key"] for one in run("records", "list", "--state", state, "--json").document["records"])
            for state in ("settled", "expired", "absent", "claimed", "in_doubt", "lapsed", "released")
        }

        assert found == {
            "settled": ["live:fresh:1"],
            "expired": ["live:expired:1"],
            "absent": ["live:gone:1"],
            "claimed": ["live:held:1"],
            "in_doubt": ["live:dead:1", "live:doubted:1"],
            "lapsed": ["live:dead:2"],
            "released": [],
        }

    def test_pages_follow_each_other_without_gap_or_repeat(self, gate: Gate, run: Any) -> None:
        """
        `next` of one page is `--after` of the following; the last has none.
        """
        for number in range(7):
            gate.run(f"job:{number}", lambda: 1)
        pages: list[list[str]] = []
        after: list[str] = []
        while True:
            page = run("records", "list", "--limit", "3", "--json", *after).document
            pages.append([one["key"] for one in page["records"]])
            if page["next"] is None:
                break
            after = ["--after", page["next"]]

        assert [len(page) for page in pages] == [3, 3, 1]
        assert {f"live:job:{number}" for number in range(7)} == {key for page in pages for key in page}

    def test_operators_see_every_scope_unless_they_ask_for_one(self, gate_at: Any, run: Any) -> None:
        """
        A scope is who calls; an operator stands behind all of them.
        """
        for scope in ("live:acme", "live:bolt"):
            gate_at(scope=scope).run("job:1", lambda: 1)

        every = run("records", "list", "--json").document["records"]
        one = run("records", "list", "--scope", "live:bolt", "--json").document["records"]

        assert {record["scope"] for record in every} == {"live:acme", "live:bolt"}
        assert [record["scope"] for record in one] == ["live:bolt"]

    def test_the_table_says_where_to_go_on(self, gate: Gate, run: Any) -> None:
        """
        On stderr, so that the table stays a table.
        """
        for number in range(2):
            gate.run(f"job:{number}", lambda: 1)

        ran = run("records", "list", "--limit", "1")

        assert len(ran.out.splitlines()) == 2
        assert re.fullmatch(r"there are more: continue with --after [0-9a-f]{64}\n", ran.err)

    def test_an_empty_store_is_no_error(self, store: str, run: Any) -> None:
        """
        Nothing in doubt is good news.
        """
        assert run("records", "list", "--state", "in_doubt") == (0, "", "no records are in doubt\n")
        assert run("records", "list", "--json").document == {"records": [], "next": None}


class TestShow:
    """One record, found by what a log shows of it."""

    def test_a_record_is_found_by_id_digest_prefix_and_key(self, gate: Gate, run: Any) -> None:
        """
        The whole id, the digest of a log, a few digits in any case, or scope and key: the same record.
        """
        gate.run("job:1", lambda: {"answer": 42})
        [listed] = run("records", "list", "--json").document["records"]
        names = [
            [listed["id"]],
            [listed["digest"]],
            [listed["id"][:5].upper()],
            ["--scope", "live:acme", "--key", "job:1"],
            ["--scope", "live:acme", "--key", "live:job:1"],
        ]

        shown = [run("records", "show", *name, "--json").document for name in names]

        assert [listed["id"]] * 5 == [one["id"] for one in shown]
        assert shown[0]["result"] == {"answer": 42}
        assert [*listed, "result"] == sorted(shown[0], key=lambda name: [*listed, "result"].index(name))

    def test_bytes_are_shown_as_base64(self, gate: Gate, run: Any) -> None:
        """
        The codec says so.
        """
        gate.run("job:1", lambda: b"\x00\xff")

        shown = run("records", "show", "--scope", "live:acme", "--key", "job:1", "--json").document

        assert (shown["codec"], shown["result"]) == ("bytes/1", "AP8=")

    def test_digits_that_fit_several_records_are_refused_with_the_candidates(
        self, store: str, run: Any, monkeypatch: pytest.MonkeyPatch, gate: Gate
    ) -> None:
        """
        Never a guess: the candidates are listed with more digits than were typed.
        """
        gate.run("job:1", lambda: 1)
        [found] = gate.store.scan(b"", 1, _everything())
        twin = found._replace(id=found.id[:6] + bytes(26))
        monkeypatch.setattr(type(gate.store), "scan", lambda *_: sorted([found, twin]))

        ran = run("records", "show", found.id.hex()[:12])

        assert (ran.code, ran.out) == (2, "")
        assert twin.id.hex()[:20] in ran.err
        assert found.id.hex()[:20] in ran.err

    def test_a_long_result_is_cut_for_people_and_whole_for_programs(self, gate: Gate, run: Any) -> None:
        """
        A screenful, and where the rest is.
        """
        gate.run("job:1", lambda: "x" * 10_000)
        name = ["--scope", "live:acme", "--key", "job:1"]

        assert run("records", "show", *name).out.splitlines()[-1] == "… (10,002 characters; --json shows all)"
        assert run("records", "show", *name, "--json").document["result"] == "x" * 10_000


class TestPurge:
    """Tidying, in batches."""

    def test_one_batch_is_the_limit_unless_all_is_asked_for(self, gate_at: Any, run: Any) -> None:
        """
        `--all` goes on until nothing is left.
        """
        long_ago = gate_at(40 * 86_400)
        for number in range(7):
            long_ago.run(f"job:{number}", lambda: 1)

        once = run("records", "purge", "--limit", "2", "--json").document
        rest = run("records", "purge", "--limit", "2", "--all", "--json")

        assert (once["forgotten"], once["batches"], once["done"]) == (2, 1, False)
        assert (rest.document["forgotten"], rest.document["batches"], rest.document["done"]) == (5, 3, True)
        assert run("records", "list", "--json").document["records"] == []

    @pytest.mark.fault("purging-all-ends-early")
    def test_all_of_both_kinds(self, gate_at: Any, run: Any) -> None:
        """
        A batch may be full of both: neither alone comes to the limit, and there is more.
        """
        for number in range(4):
            gate_at(40 * 86_400).run(f"old:{number}", lambda: 1)
            gate_at(2 * 86_400).run(f"young:{number}", lambda: 1)

        purged = run("records", "purge", "--limit", "3", "--all", "--json").document

        assert (purged["forgotten"], purged["shrunk"], purged["done"]) == (4, 4, True)

    def test_what_has_expired_is_shrunk_and_what_is_in_doubt_is_left_alone(
        self, gate_at: Any, claimed: Any, run: Any
    ) -> None:
        """
        A tombstone keeps refusing; doubt is never tidied away.
        """
        gate_at(2 * 86_400).run("expired:1", lambda: 1)
        claimed("dead:1", seconds_ago=400 * 86_400)

        purged = run("records", "purge", "--json").document

        assert (purged["forgotten"], purged["shrunk"]) == (0, 1)
        states = {one["key"]: one["state"] for one in run("records", "list", "--json").document["records"]}
        assert states == {"live:expired:1": "expired", "live:dead:1": "in_doubt"}


def _everything() -> Any:
    from onceward.stores import Selection

    return Selection()
