"""What is stored of a sealed gate: nobody reads it, and nobody moves it."""

from __future__ import annotations

from typing import Any

import pytest
from seal_support import Bench

from onceward import ConfigurationError, KeyReused
from onceward.errors import RecordedFailure, SealBroken, SealKeyMissing
from onceward.gate import Sealed

SECRET = "4111-1111-1111-1111"


def _ran() -> Any:
    pytest.fail("it ran again")


class TestReading:
    """Whoever has the key reads what was stored; nobody else does, and nothing runs for them."""

    def test_a_result_is_stored_sealed_and_replays(self, bench: Bench) -> None:
        """
        The value as it always was; in the store only the codec, and which key it is.
        """
        key = Sealed.new_key()
        gate = bench.gate(Sealed(key))
        first = bench.run(gate, "charge", {"card": SECRET})

        assert first == {"card": SECRET}
        assert bench.do(gate.run("charge", _ran)) == first
        assert bench.do(bench.gate(Sealed(key)).run("charge", _ran)) == first
        row = bench.row("charge")
        assert row["codec"] == "sealed/1:json/1"
        assert SECRET.encode() not in row["result"]
        assert Sealed(key).key_ids[0].encode() in row["result"]
        assert bench.do(gate.records.get("charge")).result == first

    def test_a_failure_is_stored_sealed_and_replays(self, bench: Bench) -> None:
        """
        Messages of errors repeat what was sent more often than results do.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        with pytest.raises(ValueError, match=SECRET):
            bench.run(gate, "charge", ValueError(SECRET), remember="all")

        assert SECRET.encode() not in bench.row("charge")["error"]
        with pytest.raises(RecordedFailure, match=SECRET):
            bench.do(gate.run("charge", _ran, remember="all"))

    @pytest.mark.fault("a-missing-seal-key-is-not-named")
    def test_without_the_key_nothing_is_read_and_nothing_runs(self, bench: Bench) -> None:
        """
        Not without any seal, not with another key; the error says which one is missing.
        """
        seal = Sealed(Sealed.new_key())
        bench.run(bench.gate(seal), "charge", SECRET)
        before = bench.row("charge")

        for other in (None, Sealed(Sealed.new_key())):
            gate = bench.gate(other)
            code, message = bench.refused(gate, "charge")
            assert (code, seal.key_ids[0] in message) == ("seal_key_missing", True)
            assert bench.do(gate.records.get("charge")).result is None
        assert bench.row("charge") == before

    def test_two_seals_of_one_value_are_never_alike(self, bench: Bench) -> None:
        """
        Not in a row of another key, nor in the same row again: a repeated nonce would give the key's stream away.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        for key in ("one", "two"):
            bench.run(gate, key, SECRET)
        nonces = {bench.row(key)["result"][23:47] for key in ("one", "two")}

        assert len(nonces) == 2

    def test_a_key_that_is_used_for_another_request_is_refused_as_ever(self, bench: Bench) -> None:
        """
        Fingerprints are not sealed, so that whoever has no key still learns that much.
        """
        bench.run(bench.gate(Sealed(Sealed.new_key())), "charge", 1, request={"amount": 1})

        with pytest.raises(KeyReused):
            bench.run(bench.gate(), "charge", 1, request={"amount": 2})


class TestMoved:
    """Two rows swapped by hand are an error, and not a wrong answer."""

    @pytest.mark.fault("a-seal-is-bound-to-no-row")
    def test_two_rows_swapped(self, bench: Bench) -> None:
        """
        All that a row says of its answer, exchanged with another row's of the same tenant.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        for key in ("alice", "bob"):
            bench.run(gate, key, f"paid {key}")
        bench.swap("alice", "bob", ("codec", "result", "error", "fence", "fingerprint", "token"))

        for key in ("alice", "bob"):
            with pytest.raises(SealBroken, match="copied from another row"):
                bench.do(gate.run(key, _ran))

    def test_two_results_swapped(self, bench: Bench) -> None:
        """
        The result alone.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        for key in ("alice", "bob"):
            bench.run(gate, key, f"paid {key}")
        bench.swap("alice", "bob", ("result",))

        for key in ("alice", "bob"):
            with pytest.raises(SealBroken):
                bench.do(gate.run(key, _ran))

    @pytest.mark.fault("a-seal-is-bound-to-no-fence")
    def test_an_answer_of_an_earlier_attempt(self, bench: Bench) -> None:
        """
        The same key, run again after its record was erased: what the first attempt stored is not the second's answer.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        bench.run(gate, "charge", "the first")
        earlier = bench.row("charge")
        bench.do(gate.records.erase())
        bench.run(gate, "charge", "the second")
        later = bench.row("charge")
        assert later["fence"] != earlier["fence"]
        bench.change("charge", result=earlier["result"])

        with pytest.raises(SealBroken):
            bench.do(gate.run("charge", _ran))
        bench.change("charge", result=later["result"])
        assert bench.do(gate.run("charge", _ran)) == "the second"

    @pytest.mark.fault("a-seal-is-bound-to-no-request")
    def test_an_answer_to_another_request(self, bench: Bench) -> None:
        """
        Whoever writes another fingerprint into the row does not get the answer to his own request.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        bench.run(gate, "small", "paid 1", request={"amount": 1})
        bench.run(gate, "large", "paid 1,000", request={"amount": 1_000})
        bench.change("small", fingerprint=bench.row("large")["fingerprint"])

        with pytest.raises(SealBroken):
            bench.do(gate.run("small", _ran, request={"amount": 1_000}))

    def test_a_failure_is_no_result_and_a_result_no_failure(self, bench: Bench) -> None:
        """
        Of the very same row.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        bench.run(gate, "charge", {"type": "ValueError", "message": "no", "code": None})
        row = bench.row("charge")
        bench.change("charge", error=row["result"], result=None, codec=None)

        with pytest.raises(SealBroken):
            bench.do(gate.run("charge", _ran))

    @pytest.mark.fault("a-seal-is-known-by-its-codec-alone")
    def test_another_codec(self, bench: Bench) -> None:
        """
        Sealed bytes are not handed out as a result of bytes.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        bench.run(gate, "charge", {"paid": True})
        for codec in ("bytes/1", "sealed/1:bytes/1", "sealed/1:http/1"):
            bench.change("charge", codec=codec)
            with pytest.raises(SealBroken):
                bench.do(gate.run("charge", _ran))

    def test_another_scope_has_another_answer(self, bench: Bench) -> None:
        """
        The same key of another tenant, with the same request, at the same fence.
        """
        seal = Sealed(Sealed.new_key())
        gate, theirs = bench.gate(seal), bench.gate(seal, scope=f"{bench.scope}-theirs")
        bench.run(gate, "charge", "ours")
        bench.run(theirs, "charge", "theirs")
        row = bench.row("charge")
        bench.change("charge", theirs.scope, result=row["result"], fence=row["fence"], token=row["token"])

        with pytest.raises(SealBroken):
            bench.do(theirs.run("charge", _ran))


class TestDamaged:
    """Whatever is changed in a sealed value, it does not open."""

    @pytest.mark.fault("a-seal-opens-with-any-key")
    def test_every_byte_counts(self, quick: Bench) -> None:
        """
        Each byte flipped, each length cut off, and something added.
        """
        gate = quick.gate(Sealed(Sealed.new_key()))
        quick.run(gate, "charge", {"paid": True})
        good = quick.row("charge")["result"]
        bad = [good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :] for at in range(len(good))]
        bad += [good[:length] for length in range(len(good))] + [good + b"\0"]

        for value in bad:
            quick.change("charge", result=value)
            with pytest.raises((SealBroken, SealKeyMissing)):
                quick.do(gate.run("charge", _ran))
        quick.change("charge", result=good)
        assert quick.do(gate.run("charge", _ran)) == {"paid": True}

    def test_a_value_that_is_gone(self, bench: Bench) -> None:
        """
        The codec says that there is one.
        """
        gate = bench.gate(Sealed(Sealed.new_key()))
        bench.run(gate, "charge", {"paid": True})
        bench.change("charge", result=None)

        with pytest.raises(SealBroken):
            bench.do(gate.run("charge", _ran))


class TestPlainRows:
    """Rows from before sealing was switched on, and rows of those who cannot seal."""

    def test_they_are_read(self, bench: Bench) -> None:
        """
        So that sealing can be switched on while everything runs.
        """
        bench.run(bench.gate(), "charge", {"paid": True})

        assert bench.do(bench.gate(Sealed(Sealed.new_key())).run("charge", _ran)) == {"paid": True}

    @pytest.mark.fault("sealed-only-reads-plain-rows")
    def test_with_sealed_only_they_are_refused(self, bench: Bench) -> None:
        """
        Otherwise whoever writes to the store answers in our name, in plain text.
        """
        plain = bench.gate()
        bench.run(plain, "charge", {"paid": True})
        with pytest.raises(ValueError, match="no"):
            bench.run(plain, "refused", ValueError("no"), remember="all")
        gate = bench.gate(Sealed(Sealed.new_key()), sealed_only=True)

        for key in ("charge", "refused"):
            with pytest.raises(SealBroken, match="onceward store reseal"):
                bench.do(gate.run(key, _ran))
        bench.run(gate, "new", 7)
        assert bench.do(gate.run("new", _ran)) == 7

    def test_a_gate_says_at_once_what_it_cannot_do(self, quick: Bench) -> None:
        """
        A seal that is none, a class in place of an object, a promise without keys.
        """
        for options in ({"seal": "secret"}, {"seal": Sealed}, {"sealed_only": True}):
            with pytest.raises(ConfigurationError, match="seal"):
                quick.gate(**options)  # type: ignore[arg-type]
