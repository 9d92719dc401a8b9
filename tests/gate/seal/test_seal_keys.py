"""Keys: several of them, a file that changes while a gate runs, and what a key's id gives away."""

from __future__ import annotations

import logging
import threading
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from seal_support import Bench

from onceward import ConfigurationError, Gate
from onceward.errors import SealKeyMissing
from onceward.gate import SealContext, Sealed, SealedData, seal_keys
from onceward.testing.clock import StillEnvironment

CONTEXT = SealContext("live:acme", b"i" * 32, "json/1", b"f" * 33, b"\x01" + b"17")


def _file(path: Path, *keys: str) -> Path:
    """A file of keys, put there whole."""
    made = path.with_suffix(".new")
    made.write_text("# The first seals.\n" + "".join(f"{key}\n" for key in keys), encoding="ascii")
    made.chmod(0o600)
    made.rename(path)
    return path


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Once, between the reading of a file and the use of its keys, do what another thread would."""
    read, acts = seal_keys._KeyFile.read, [act]

    def read_and_wait(file: Any) -> list[str]:
        found = read(file)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(seal_keys._KeyFile, "read", read_and_wait)


def _ran() -> Any:
    pytest.fail("it ran again")


def _opened(seal: Sealed, sealed: SealedData | None = None) -> Any:
    """What was sealed (or is, here), opened again; or the error that came of it."""
    try:
        return seal.unseal(seal.seal(b"paid", CONTEXT) if sealed is None else sealed, CONTEXT)
    except (ConfigurationError, SealKeyMissing) as error:
        return error


class TestSeveralKeys:
    """The first seals, all open."""

    def test_a_key_is_changed_while_the_gate_runs(self, bench: Bench) -> None:
        """
        Old answers replay under the new key; without the old key, they are an error.
        """
        old, new = Sealed.new_key(), Sealed.new_key()
        seal = Sealed(old)
        gate = bench.gate(seal)
        bench.run(gate, "before", "under the old key")
        seal.use(new, old)
        bench.run(gate, "after", "under the new key")

        assert bench.do(gate.run("before", _ran)) == "under the old key"
        assert bench.do(bench.gate(Sealed(new)).run("after", _ran)) == "under the new key"
        seal.use(new)
        with pytest.raises(SealKeyMissing, match=Sealed(old).key_ids[0]):
            bench.do(gate.run("before", _ran))

    def test_an_id_says_nothing_about_its_key(self) -> None:
        """
        It is stored in plain text with every value, so it must not be a part of the key.
        """
        key = Sealed.new_key()
        seal = Sealed(key)
        raw = urlsafe_b64decode(key)

        assert seal.key_ids == Sealed(key.encode()).key_ids
        assert bytes.fromhex(seal.key_ids[0]) not in raw
        assert key not in repr(seal)
        assert repr(seal) == f"<Sealed {seal.key_ids[0]}>"

    @pytest.mark.fault("a-nonce-is-used-twice")
    def test_a_thousand_seals_have_a_thousand_nonces(self) -> None:
        """
        Of one value, under one key.
        """
        seal = Sealed(Sealed.new_key())
        made = {seal.seal(b"the same", CONTEXT).data[1:25] for _ in range(1_000)}

        assert len(made) == 1_000

    @pytest.mark.fault("a-key-id-is-ignored")
    def test_everything_that_a_value_is_bound_to_counts(self) -> None:
        """
        Each part of the context alone; and no two contexts run together alike.
        """
        seal = Sealed(Sealed.new_key())
        sealed = seal.seal(b"paid", CONTEXT)
        others = [
            CONTEXT._replace(scope="live:acm"),
            CONTEXT._replace(id=b"j" * 32),
            CONTEXT._replace(codec="json/2"),
            CONTEXT._replace(fingerprint=b"g" * 33),
            CONTEXT._replace(claim=b"\x01" + b"18"),
            CONTEXT._replace(claim=b"\x02" + b"17"),
            CONTEXT._replace(scope="live:acmei", id=b"i" * 31),
        ]

        assert seal.unseal(sealed, CONTEXT) == b"paid"
        assert len({one.associated_data("k") for one in (CONTEXT, *others)}) == len(others) + 1
        for other in others:
            with pytest.raises(Exception):  # noqa: B017 - the library's own, which says nothing
                seal.unseal(sealed, other)
        with pytest.raises(SealKeyMissing):
            seal.unseal(sealed._replace(key_id="0" * 16), CONTEXT)


class TestFile:
    """A file of keys, read again when it changes."""

    @pytest.mark.fault("a-file-of-keys-is-read-once")
    def test_a_new_key_seals_soon_and_the_old_one_opens(self, tmp_path: Path) -> None:
        """
        Within a second, nobody restarts anything.
        """
        env, old, new = StillEnvironment(), Sealed.new_key(), Sealed.new_key()
        path = _file(tmp_path / "keys", old)
        seal = Sealed.from_file(path, environment=env)
        before = seal.seal(b"before", CONTEXT)
        _file(path, new, old)
        env.advance(1)
        after = seal.seal(b"after", CONTEXT)

        assert (before.key_id, after.key_id) == (Sealed(old).key_ids[0], Sealed(new).key_ids[0])
        assert [seal.unseal(one, CONTEXT) for one in (before, after)] == [b"before", b"after"]

    def test_a_key_that_another_process_uses_already_is_found_at_once(self, tmp_path: Path) -> None:
        """
        It has read the file a moment before us.
        """
        old, new = Sealed.new_key(), Sealed.new_key()
        path = _file(tmp_path / "keys", old)
        ours = Sealed.from_file(path, environment=StillEnvironment())
        _file(path, new, old)
        theirs = Sealed.from_file(path)

        assert ours.unseal(theirs.seal(b"theirs", CONTEXT), CONTEXT) == b"theirs"

    @pytest.mark.fault("a-bad-file-of-keys-ends-the-work")
    def test_a_file_that_went_bad_changes_nothing(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """
        Half written, gone, or open to all: it is logged, and the keys that were read stay.
        """
        env, key = StillEnvironment(), Sealed.new_key()
        path = _file(tmp_path / "keys", key)
        seal = Sealed.from_file(path, environment=env)
        bad = [
            lambda: path.write_text("half a k"),
            lambda: path.write_text(""),
            lambda: (_file(path, key), path.chmod(0o644)),
            path.unlink,
        ]
        opened: list[Any] = []
        with caplog.at_level(logging.WARNING, "onceward"):
            for spoil in bad:
                spoil()
                env.advance(2)
                opened.append(_opened(seal))

        assert opened == [b"paid"] * len(bad)
        assert len([one for one in caplog.messages if "the keys stay as they are" in one]) == len(bad)
        assert key not in caplog.text

    @pytest.mark.fault("a-file-of-keys-may-be-read-by-all")
    @pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
    def test_a_file_that_others_can_read_is_refused(self, tmp_path: Path, mode: int) -> None:
        """
        A secret that everybody on the machine can read is none.
        """
        path = _file(tmp_path / "keys", Sealed.new_key())
        path.chmod(mode)

        with pytest.raises(ConfigurationError, match="chmod 600"):
            Sealed.from_file(path)

    @pytest.mark.parametrize("text", ["", "# nothing but this\n", "too short\n"])
    def test_a_file_without_keys_is_refused(self, tmp_path: Path, text: str) -> None:
        """
        And what is in it is not shown.
        """
        path = tmp_path / "keys"
        path.write_text(text)
        path.chmod(0o600)

        with pytest.raises(ConfigurationError, match="new_key") as refused:
            Sealed.from_file(path)
        assert "short" not in str(refused.value)

    @pytest.mark.fault("a-file-of-keys-counts-as-read-too-soon")
    def test_who_meets_a_new_key_while_another_reads_the_file_reads_it_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Two threads at the same change: the second is not told that the key is missing because the first is at it.
        """
        old, new = Sealed.new_key(), Sealed.new_key()
        path = _file(tmp_path / "keys", old)
        seal = Sealed.from_file(path)
        sealed = Sealed(new).seal(b"paid", CONTEXT)
        _file(path, new, old)
        opened: list[Any] = []
        _meanwhile(monkeypatch, lambda: opened.append(_opened(seal, sealed)))

        assert _opened(seal, sealed) == b"paid"
        assert opened == [b"paid"]

    @pytest.mark.fault("an-older-file-of-keys-is-kept")
    def test_keys_of_an_older_file_do_not_stay(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Two threads read two states of the file, and the one that read the older is the last to say so.
        """
        keys = [Sealed.new_key() for _ in range(3)]
        path = _file(tmp_path / "keys", keys[0])
        seal = Sealed.from_file(path)
        second, third = (Sealed(one).seal(b"paid", CONTEXT) for one in keys[1:])
        _file(path, keys[1], keys[0])
        opened: list[Any] = []

        def change() -> None:
            _file(path, *reversed(keys))
            opened.append(_opened(seal, third))

        _meanwhile(monkeypatch, change)

        assert _opened(seal, second) == b"paid"
        assert opened == [b"paid"]
        assert _opened(seal, third) == b"paid"

    @pytest.mark.slow
    def test_keys_change_under_load(self, tmp_path: Path) -> None:
        """
        Four threads run and replay while the file is changed twenty times: no error, no second run, and in the end
        every answer opens with what is in the file.
        """
        keys = [Sealed.new_key()]
        path = _file(tmp_path / "keys", *keys)
        gate = Gate(f"sqlite:///{tmp_path}/load.db", scope="test:load", seal=Sealed.from_file(path))
        effects: list[str] = []
        wrong: list[Any] = []
        over = threading.Event()

        def work(number: int) -> None:
            made = 0
            while not over.is_set() or made < 20:
                key = f"{number}-{made}"
                try:
                    told = [gate.run(key, lambda key=key: effects.append(key) or key) for _ in range(2)]
                    wrong.extend(one for one in told if one != key)
                except Exception as error:
                    wrong.append(error)
                made += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            keys.insert(0, Sealed.new_key())
            _file(path, *keys)
            gate.store.sealer.seal._file._looked_at = 0.0  # A second has passed.
        over.set()
        for thread in threads:
            thread.join()

        assert wrong == []
        assert len(effects) == len(set(effects))
        assert len({one.result for one in gate.records.list()}) == len(gate.records.list())
        gate.close()
