"""What was given up is kept, with its evidence."""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pytest
from dead_support import Desk

from onceward import AsyncGate, ConfigurationError, Gate, Retry, StoreUnavailable, stop_of
from onceward._core.dead_letters import DEAD, PAYLOAD_BYTES_MAX, is_dead_letter
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.store_protocols import Selection
from onceward.errors import SealBroken, SealKeyMissing
from onceward.gate import SealContext, Sealed, SealedData
from onceward.retry import GivenUp, Stop, StopReason
from onceward.verdicts import Certainty, Verdict

REFUSED = ConnectionRefusedError("refused")  # Nothing was sent.
UNKNOWN = TimeoutError("no answer")  # Nobody knows.


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class TestEvidence:
    """On every store, in both colours."""

    @pytest.mark.requirement("C37")
    def test_a_letter_holds_key_fingerprint_error_and_attempts(self, desk: Desk) -> None:
        """
        And somebody is told; and there is an end to it: three attempts, no more.
        """
        dead, alerts, calls = desk.gate.dead_letters(), [], []

        def charge(order: str, amount: Decimal) -> None:
            calls.append(order)
            raise REFUSED

        policy = desk.policy(dead, key="charge:{order}", on_stop=alerts.append, name="charge")
        with pytest.raises(ConnectionRefusedError):
            desk.call(policy, charge, "o-17", Decimal("12.50"))
        letter = desk.do(dead.get("charge:o-17"))

        assert (len(calls), len(alerts)) == (3, 1)
        assert (desk.scope, "charge", "attempts", 1, 3) == (
            letter.scope,
            letter.name,
            letter.reason,
            letter.count,
            letter.attempts,
        )
        assert letter.key == "test:charge:o-17"
        assert fingerprint_canonical({"order": "o-17", "amount": Decimal("12.50")}).hex() == letter.fingerprint
        assert (letter.error, letter.message) == ("ConnectionRefusedError", "refused")
        assert [one.number for one in letter.tries] == [1, 2, 3]
        assert {one.certainty for one in letter.tries} == {"not sent"}
        assert sorted({one.at for one in letter.tries}) == [one.at for one in letter.tries]
        assert letter.seconds_left == pytest.approx(30 * 86_400, abs=60)

    def test_given_up_twice_is_one_letter(self, desk: Desk) -> None:
        """
        Counted up, with the attempts of both; the first time stays what it was.
        """
        dead = desk.gate.dead_letters()
        first = desk.give_up(dead, REFUSED)
        again = desk.give_up(dead, REFUSED)

        assert (first.count, again.count) == (1, 2)
        assert (first.id, first.first_at) == (again.id, again.first_at)
        assert (again.attempts, len(again.tries)) == (6, 6)
        assert [again.id] == [one.id for one in desk.do(dead.list())]

    def test_pages_show_this_scopes_letters_only(self, desk: Desk) -> None:
        """
        In order of id, page by page; a discarded one is gone, and the records beside them are not letters.
        """
        dead = desk.gate.dead_letters()
        ids = sorted(desk.give_up(dead, REFUSED, key=f"charge:{number}").id for number in range(5))
        desk.do(desk.gate.run("charge:0", desk.coloured(lambda: "done")))
        discarded = desk.do(dead.get("charge:3"))
        assert desk.do(dead.discard(discarded)) is True
        assert desk.do(dead.discard(discarded)) is False
        first = desk.do(dead.list(limit=2))
        rest = desk.do(dead.list(after=first[-1].id))

        assert [one for one in ids if one != discarded.id] == [one.id for one in (*first, *rest)]
        assert len(first) == 2
        assert desk.do(dead.get("charge:3")) is None
        assert [first[0].id] == [one.id for one in desk.do(dead.find(first[0].digest))]

    def test_a_call_without_a_key_gets_a_letter_of_its_own(self, desk: Desk) -> None:
        """
        Under a key made up here: two calls, two letters, each found again.
        """
        dead = desk.gate.dead_letters()
        one, other = (desk.give_up(dead, UNKNOWN, key=None) for _ in range(2))

        assert one.id != other.id
        assert (one.keyed, one.reason, one.verdict.certainty) == (False, "no_key", Certainty.UNKNOWN)
        assert one.id == desk.do(dead.get(one.key)).id


class TestWhatIsKept:
    """What no store can change."""

    def test_doubt_is_sticky(self, quick: Desk) -> None:
        """
        An operation that may have happened goes on saying so, whatever comes later.
        """
        dead = quick.gate.dead_letters()
        quick.give_up(dead, UNKNOWN)
        letter = quick.give_up(dead, REFUSED)

        assert (letter.count, letter.verdict.certainty, letter.may_have_happened) == (2, Certainty.UNKNOWN, True)
        assert letter.tries[-1].certainty == "not sent"

    def test_what_may_have_happened_is_kept_though_it_is_never_retried(self, quick: Desk) -> None:
        """
        An error that explains nothing ends a call at once, and may have had its effect: a letter.
        """
        dead = quick.gate.dead_letters()
        letter = quick.give_up(dead, ValueError("out of the blue"))

        assert (letter.reason, letter.attempts, letter.verdict.certainty) == ("never", 1, Certainty.UNKNOWN)

    def test_attempts_are_bounded(self, quick: Desk) -> None:
        """
        The first and the latest nineteen; how many there were is still told.
        """
        dead = quick.gate.dead_letters()
        for _ in range(9):
            letter = quick.give_up(dead, REFUSED)

        assert (letter.attempts, len(letter.tries)) == (27, 20)
        many = quick.policy(dead, attempts=60, allow_many=True, elapsed=86_400, name="many")
        with pytest.raises(ConnectionRefusedError) as raised:
            quick.call(many, self._refused)
        stop = stop_of(raised.value)
        assert stop is not None
        assert (stop.attempts, len(stop.tries), stop.tries[0].number, stop.tries[-1].number) == (60, 20, 1, 60)

    def test_a_policy_without_dead_letters_keeps_no_history(self, quick: Desk) -> None:
        """
        Nobody pays for what nobody keeps.
        """
        with pytest.raises(ConnectionRefusedError) as raised:
            quick.call(Retry(environment=quick.env), self._refused)
        assert stop_of(raised.value).tries == ()  # type: ignore[union-attr]

    def test_when_to_come_back_is_kept(self, quick: Desk) -> None:
        """
        A server that asks for an hour, and a minute's time: given up at once, with the time to come back.
        """

        class Busy(Exception):
            response = type("Answer", (), {"status_code": 429, "headers": {"retry-after": "3600"}})()

        dead = quick.gate.dead_letters()
        letter = quick.give_up(dead, Busy("busy"))

        assert (letter.reason, letter.attempts) == ("deadline", 1)
        assert letter.retry_at is not None
        assert pytest.approx(letter.retry_at.timestamp() - quick.env.wall_us() / 1e6, abs=1) == 3_600

    def test_long_and_speechless_errors_are_kept_as_far_as_possible(self, quick: Desk) -> None:
        """
        A message is cut to a limit, one that cannot be said is replaced, and surrogates are escaped.
        """
        dead = quick.gate.dead_letters()
        messages = [
            quick.give_up(dead, error, key=f"charge:{number}").message
            for number, error in enumerate(
                [ConnectionRefusedError("x" * 100_000), Mute(), ConnectionRefusedError("\udc80\x1b[31m")]
            )
        ]

        assert len(messages[0]) <= 500
        assert messages[1] == "(the exception could not be turned into text)"
        assert messages[2] == "\\udc80\x1b[31m"

    def test_arguments_without_a_canonical_form_have_no_fingerprint(self, quick: Desk) -> None:
        """
        The letter is kept all the same, without them.
        """
        dead = quick.gate.dead_letters(payload="plain")
        letter = quick.give_up(dead, REFUSED, object())

        assert (letter.fingerprint, letter.payload) == (None, "omitted")
        assert letter.payload_note == "not kept: args[0] is not plain data"

    def test_a_name_with_control_characters_is_escaped(self, desk: Desk) -> None:
        """
        On every store (PostgreSQL takes no NUL); and it is found by the same name.
        """
        dead = desk.gate.dead_letters()
        dead.handle("char\x00ge\x1b", desk.coloured(lambda: "done"))
        policy = desk.policy(dead, name="char\x00ge\x1b").bind(key="charge:1")
        with pytest.raises(ConnectionRefusedError):
            desk.call(policy, self._refused)

        assert desk.do(dead.get("charge:1")).name == "char\\x00ge\\x1b"
        assert desk.do(dead.requeue("charge:1")) == "done"

    def test_letters_go_when_their_time_is_over(self, quick: Desk) -> None:
        """
        After `keep`, counted from the last giving up; a purge then deletes the row.
        """
        dead = quick.gate.dead_letters(keep=60)
        quick.give_up(dead, REFUSED)
        quick.env.advance(59)
        kept = quick.do(dead.list())
        quick.env.advance(1)

        assert (len(kept), quick.do(dead.list())) == (1, ())
        assert quick.do(quick.gate.purge()).forgotten == 1

    def test_a_damaged_letter_is_replaced_and_loses_nobody_elses(self, quick: Desk) -> None:
        """
        What cannot be read is not listed, not counted, and does not stand in the way of the next one.
        """
        dead = quick.gate.dead_letters()
        letter = quick.give_up(dead, REFUSED)
        quick.give_up(dead, REFUSED, key="charge:2")
        (found,) = [one for one in quick.ask_store("scan", b"", 10, Selection(kind=DEAD)) if one.id.hex() == letter.id]
        self._put(quick, found, result=b'{"count": "many"}')

        assert [one.key for one in quick.do(dead.list())] == ["test:charge:2"]
        assert quick.give_up(dead, REFUSED).count == 1

    @staticmethod
    def _put(quick: Desk, found: Any, **changes: Any) -> None:
        from onceward._core.record import Write

        carried = {name: value for name, value in found._asdict().items() if name in Write._fields}
        write = Write(
            **carried | {"version": b"!" * 16, "rise": False} | changes, lease=None, replay=None, forget=10**12
        )
        assert quick.ask_store("put", write, found.version).landed

    @staticmethod
    def _refused() -> None:
        raise REFUSED


class TestPayload:
    """Arguments are left out, unless somebody says how to keep them."""

    def test_arguments_are_omitted_by_default(self, desk: Desk) -> None:
        """
        Nothing of them is in the store.
        """
        dead = desk.gate.dead_letters()
        letter = desk.give_up(dead, REFUSED, "4111-1111", currency="EUR")

        assert (letter.payload, letter.payload_note, desk.do(dead.arguments(letter))) == ("omitted", None, None)
        assert b"4111-1111" not in self._stored(desk)

    def test_plain_arguments_come_back(self, desk: Desk) -> None:
        """
        As JSON has them; and no `repr` shows them, nor the key.
        """
        dead = desk.gate.dead_letters(payload="plain")
        letter = desk.give_up(dead, REFUSED, Decimal("12.50"), currency="EUR")

        assert dead.arguments(letter) == (("12.50",), {"currency": "EUR"})
        assert "EUR" not in repr(letter)
        assert "charge:1" not in repr(letter)

    def test_sealed_arguments_are_read_by_whoever_has_the_key(self, desk: Desk) -> None:
        """
        Not in the store, not with another key; with the old one beside the new, still.
        """
        key, new = Sealed.new_key(), Sealed.new_key()
        dead = desk.gate.dead_letters(payload=Sealed(key))
        letter = desk.give_up(dead, REFUSED, "4111-1111")

        assert letter.payload == "sealed"
        assert b"4111-1111" not in self._stored(desk)
        assert dead.arguments(letter) == (("4111-1111",), {})
        assert desk.gate.dead_letters(payload=Sealed(new, key)).arguments(letter) == (("4111-1111",), {})
        with pytest.raises(SealKeyMissing, match=Sealed(key).key_ids[0]):
            desk.gate.dead_letters(payload=Sealed(new)).arguments(letter)
        with pytest.raises(ConfigurationError, match="give the dead letters its key"):
            desk.gate.dead_letters().arguments(letter)

    def test_a_sealed_payload_is_no_other_letters(self, quick: Desk) -> None:
        """
        Whoever can write to the store cannot pass one letter's payload off as another's.
        """
        from dataclasses import replace

        dead = quick.gate.dead_letters(payload=Sealed(Sealed.new_key()))
        small = quick.give_up(dead, REFUSED, 1, key="charge:small")
        large = quick.give_up(dead, REFUSED, 1_000_000, key="charge:large")

        with pytest.raises(SealBroken, match="copied from another row"):
            dead.arguments(replace(small, payload_data=large.payload_data))

    def test_what_fernet_sealed_is_still_opened(self, quick: Desk) -> None:
        """
        Payloads were sealed with Fernet first, under the same kind of key; another key still opens nothing.
        """
        from dataclasses import replace

        from cryptography.fernet import Fernet

        key = Sealed.new_key()
        letter = quick.give_up(quick.gate.dead_letters(payload="plain"), REFUSED, "4111-1111")
        token = Fernet(key).encrypt((letter.payload_data or "").encode())
        old = replace(letter, payload="sealed", payload_data=b64encode(token).decode())

        assert quick.gate.dead_letters(payload=Sealed(Sealed.new_key(), key)).arguments(old) == (("4111-1111",), {})
        with pytest.raises(ConfigurationError, match="sealed with another key"):
            quick.gate.dead_letters(payload=Sealed(Sealed.new_key())).arguments(old)

    def test_a_huge_payload_is_left_out_with_a_note(self, quick: Desk) -> None:
        """
        The limit is a setting; the letter itself is kept.
        """
        dead = quick.gate.dead_letters(payload="plain")
        letter = quick.give_up(dead, REFUSED, "x" * (PAYLOAD_BYTES_MAX + 1))

        assert letter.payload == "omitted"
        assert "the limit is 65,536" in (letter.payload_note or "")

    def test_a_seal_that_fails_costs_the_payload_only(self, quick: Desk) -> None:
        """
        A key service that is away, say.
        """

        class Away:
            def seal(self, data: bytes, context: SealContext) -> SealedData:
                raise OSError("away")

            def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
                raise OSError("away")

        letter = quick.give_up(quick.gate.dead_letters(payload=Away()), REFUSED, 12)

        assert (letter.payload, letter.payload_note) == ("omitted", "not kept: sealing raised OSError")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"payload": "encrypted"}, "payload is 'plain'"),
            ({"payload": Sealed}, "payload is 'plain'"),
            ({"keep": 0}, "greater than zero"),
            ({"payload_bytes_max": -1}, "zero or more"),
        ],
    )
    def test_bad_settings_are_refused_at_once(self, options: Any, says: str, quick: Desk) -> None:
        """
        And not when something has gone wrong already.
        """
        with pytest.raises(ConfigurationError, match=says):
            quick.gate.dead_letters(**options)

    @pytest.mark.parametrize("keys", [(), ("short",), (b"\x00" * 32,), (12,)])
    def test_a_bad_key_is_refused_without_being_shown(self, keys: Any) -> None:
        """
        A key is a secret, also one that is none.
        """
        with pytest.raises(ConfigurationError, match=r"new_key\(\)") as refused:
            Sealed(*keys)
        assert "short" not in str(refused.value)

    @staticmethod
    def _stored(desk: Desk) -> bytes:
        page = desk.ask_store("scan", b"", 10, Selection(scope=desk.scope, kind=DEAD))
        assert all(is_dead_letter(one) for one in page)
        return b"".join(one.result or b"" for one in page)


class TestTheCallIsNotAffected:
    """Whatever happens to the letter."""

    def test_a_store_that_is_away_changes_nothing(self, quick: Desk, caplog: pytest.LogCaptureFixture) -> None:
        """
        The caller gets the last error, unchanged; the log says that nothing was kept.
        """
        dead = quick.gate.dead_letters()

        def away(*_: Any) -> Any:
            raise StoreUnavailable

        quick.gate.store.put = away
        policy = quick.policy(dead).bind(key="charge:1")
        with pytest.raises(ConnectionRefusedError) as raised, caplog.at_level(logging.WARNING):
            quick.call(policy, TestWhatIsKept._refused)

        assert raised.value is REFUSED
        assert StopReason.ATTEMPTS is stop_of(raised.value).reason  # type: ignore[union-attr]
        assert any("dead.put raised StoreUnavailable" in one.getMessage() for one in caplog.records)

    def test_awaited_letters_under_a_blocking_call_are_refused_aloud(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        Nobody would await them: a warning, and no coroutine left lying about.
        """
        dead = AsyncGate("memory://", scope="test:acme").dead_letters()
        with pytest.raises(ConnectionRefusedError):
            Retry(1, dead=dead).call(TestWhatIsKept._refused)

        assert any("dead.put raised ConfigurationError" in one.getMessage() for one in caplog.records)

    def test_a_key_of_another_environment_is_refused_aloud(self, caplog: pytest.LogCaptureFixture) -> None:
        """
        A test key does not get into a live store; the call ends as it would have.
        """
        dead = Gate("memory://", scope="live:acme").dead_letters()
        with pytest.raises(ConnectionRefusedError):
            Retry(1, dead=dead).bind(key="test:charge:1").call(TestWhatIsKept._refused)

        assert any("dead.put raised KeyInvalid" in one.getMessage() for one in caplog.records)
        assert dead.list() == ()


def test_records_do_not_show_what_a_letter_holds(quick: Desk) -> None:
    """
    A letter is a record among others, under a codec of its own: looking at records shows no payload.
    """
    dead = quick.gate.dead_letters(payload="plain")
    quick.give_up(dead, REFUSED, "4111-1111")
    (shown,) = quick.do(quick.gate.records.list())

    assert (shown.kind, shown.codec, shown.result) == (DEAD, "dead/1", None)
    assert "4111-1111" not in json.dumps(repr(shown))


def test_anything_with_put_can_take_its_place(quick: Desk) -> None:
    """
    The policy knows a protocol only: a stop with its tries, and the call.
    """
    kept: list[tuple[Stop, GivenUp]] = []

    class Mine:
        def put(self, stop: Stop, call: GivenUp) -> None:
            kept.append((stop, call))

    with pytest.raises(ConnectionRefusedError):
        quick.call(quick.policy(Mine(), attempts=2), TestWhatIsKept._refused)
    ((stop, _),) = kept
    assert [one.message for one in stop.tries] == ["refused", "refused"]
    assert isinstance(stop.verdict, Verdict)
