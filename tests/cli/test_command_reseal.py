"""`onceward store reseal`, and how the commands for records and dead letters open what is sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceward import Gate
from onceward.gate import Sealed

URL, SCOPE, SECRET = "sqlite:///agent.db", "live:acme", "4111-1111-1111-1111"


@pytest.fixture
def keys(folder: Path) -> Path:
    """A file with a key."""
    path = folder / "keys"
    path.write_text(Sealed.new_key() + "\n")
    path.chmod(0o600)
    return path


def _stored(key: str, seal: Sealed | None = None) -> None:
    with Gate(URL, scope=SCOPE, seal=seal) as gate:
        gate.run(key, lambda: {"card": SECRET})


def test_a_sealed_record_is_shown_with_its_key_and_not_without(keys: Path, run: Any, monkeypatch: Any) -> None:
    """
    By a flag, or by the environment; without, everything but the result.
    """
    _stored("charge", Sealed.from_file(keys))
    named = ("records", "show", "--scope", SCOPE, "--key", "charge", "--store", URL, "--json")
    without = run(*named)
    with_flag = run(*named, "--seal-keys", str(keys))
    monkeypatch.setenv("ONCEWARD_SEAL_KEYS", str(keys))
    with_variable = run(*named)

    assert (without.code, without.document["state"], without.document["codec"]) == (0, "settled", "sealed/1:json/1")
    assert SECRET not in without.out
    assert with_flag.document["result"] == with_variable.document["result"] == {"card": SECRET}


def test_what_was_plain_is_sealed(keys: Path, run: Any, folder: Path) -> None:
    """
    And the numbers say so; a second time there is nothing to do.
    """
    _stored("before")
    first = run("store", "reseal", "--seal-keys", str(keys), "--store", URL, "--json")
    second = run("store", "reseal", "--seal-keys", str(keys), "--store", URL)

    assert (first.code, first.document) == (
        0,
        {"lookedAt": 1, "resealed": 1, "held": 0, "unreadable": 0, "unreadableDigests": []},
    )
    assert (second.code, "sealed     0" in second.out) == (0, True)
    with Gate(URL, scope=SCOPE, seal=Sealed.from_file(keys), sealed_only=True) as gate:
        assert gate.run("before", lambda: pytest.fail("it ran again")) == {"card": SECRET}


def test_what_does_not_open_makes_the_answer_no(keys: Path, run: Any) -> None:
    """
    Its digest is shown, and it is left alone.
    """
    _stored("charge", Sealed(Sealed.new_key()))
    ran = run("store", "reseal", "--seal-keys", str(keys), "--store", URL, "--json")
    shown = run("store", "reseal", "--seal-keys", str(keys), "--store", URL)

    assert (ran.code, ran.document["unreadable"], len(ran.document["unreadableDigests"])) == (1, 1, 1)
    assert ran.document["unreadableDigests"][0] in shown.out


def test_wrong_keys_are_refused_and_not_shown(keys: Path, run: Any) -> None:
    """
    None named, a file for all to read, a file of something else.
    """
    _stored("charge")
    none = run("store", "reseal", "--store", URL)
    keys.chmod(0o644)
    open_to_all = run("store", "reseal", "--seal-keys", str(keys), "--store", URL)
    keys.chmod(0o600)
    keys.write_text("hunter2\n")
    wrong = run("store", "reseal", "--seal-keys", str(keys), "--store", URL)

    assert (none.code, open_to_all.code, wrong.code) == (2, 2, 2)
    assert "--seal-keys" in none.err
    assert "chmod 600" in open_to_all.err
    assert "hunter2" not in wrong.err


def test_a_sealed_dead_letter_is_listed_with_its_key(keys: Path, run: Any) -> None:
    """
    Without the key it is counted as one that cannot be read.
    """
    from onceward import Retry

    def charge(card: str) -> None:
        raise ConnectionRefusedError(card)

    with Gate(URL, scope=SCOPE, seal=Sealed.from_file(keys)) as gate:
        policy = Retry(attempts=1, dead=gate.dead_letters(payload="plain"), name="charge").bind(key="charge:1")
        with pytest.raises(ConnectionRefusedError):
            policy.call(charge, SECRET)
    listed = run("dead", "list", "--store", URL, "--json", "--seal-keys", str(keys))
    without = run("dead", "list", "--store", URL, "--json")

    assert [one["name"] for one in listed.document["letters"]] == ["charge"]
    assert without.document["letters"] == []
    assert SECRET not in without.out + without.err
