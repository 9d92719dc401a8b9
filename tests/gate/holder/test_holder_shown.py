"""What operators see of a holder, how it is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from holder_support import Gone, held_elsewhere, this_process

from onceward import ConfigurationError, Gate
from onceward._core.holders import (
    HOST_MAX,
    Process,
    encode_process,
    holder_of,
    is_by_lease,
    restamp_holder,
    stamp_holder,
)
from onceward._core.record import FRESH, Claimant, Record, claim, record_from_write
from onceward.cli import main

SCOPE = "live:acme"
PROCESS = Process("web-1", b"machine!", b"the boot", b"the pids", 4711, 123_456, 1_763_308_694)


def record(**changes: Any) -> Record:
    """A claim of that process."""
    who = (b"i" * 32, "key", SCOPE, "k", "charge", None, "blind", b"\1" * 33, 60, 0, False)
    claimant = Claimant(*who, encode_process(PROCESS), bool(changes.pop("by_lease", False)))
    write = claim(claimant, FRESH, token=b"a token of 16 b.", version=b"v" * 16)
    return record_from_write(write, now=1, fence=1)._replace(**changes)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a claim of a dead process."""
    url = f"sqlite:///{tmp_path}/shown.db"
    with Gate(url, scope=SCOPE, lease=3_600, environment=Gone()) as gate:
        held_elsewhere(gate, "charge:17", name="charge")
    return url


def test_show_names_the_holder_in_plain_words(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Which process, on which host, since when.
    """
    code = main(["records", "show", "--scope", SCOPE, "--key", "charge:17", "--store", url])
    me = this_process()
    assert me.started_at is not None

    assert code == 0
    assert f"process {me.pid} on {me.host}, started {me.started_at.isoformat()}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["list", "show"])
def test_json_has_the_holder_as_an_object(url: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    Host, pid and the instant of its start.
    """
    which = ["--scope", SCOPE, "--key", "charge:17"] if command == "show" else []
    main(["records", command, *which, "--json", "--store", url])
    document = json.loads(capsys.readouterr().out)
    found = document["records"][0] if command == "list" else document
    me = this_process()
    assert me.started_at is not None

    assert {"host": me.host, "pid": me.pid, "startedAt": me.started_at.isoformat()} == found["holder"]


def test_what_a_dead_holder_left_can_be_reconciled_by_command(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """
    On its host nobody has to wait for its lease.
    """
    which = ["--scope", SCOPE, "--key", "charge:17", "--store", url]
    code = main(["records", "reconcile", *which, "--did-not-happen", "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["state"] == "released"


class TestWriting:
    """The column: what is written is what is read, and nothing else is believed."""

    def test_what_is_written_is_read(self) -> None:
        """
        Every field, of the claim that it stands in.
        """
        assert holder_of(record()) == PROCESS
        assert (is_by_lease(record()), is_by_lease(record(by_lease=True))) == (False, True)

    @pytest.mark.fault("a-name-speaks-for-any-claim")
    def test_a_name_speaks_for_its_own_claim_only(self) -> None:
        """
        Under another token it is somebody else's, and says nothing; stamped anew, it is the same process.
        """
        other = record(token=b"another token...")

        assert holder_of(other) is None
        assert is_by_lease(other)
        assert holder_of(other._replace(holder=restamp_holder(other.holder or b"", other.token))) == PROCESS

    @pytest.mark.parametrize("holder", [None, b"", b"\x01", b"\x02" + b"x" * 80], ids=["none", "empty", "short", "new"])
    def test_what_cannot_be_read_names_nobody(self, holder: bytes | None) -> None:
        """
        A row of the version before, a damaged one, or one of a version to come: its lease is waited for.
        """
        found = record(holder=holder)

        assert holder_of(found) is None
        assert is_by_lease(found)

    def test_a_long_host_name_is_cut_and_an_odd_one_is_read(self) -> None:
        """
        Names are for people; nothing is decided by them.
        """
        for host in ("x" * 300, "Büro", "\udcff"):
            stored = stamp_holder(encode_process(PROCESS._replace(host=host)), record().token, False)
            found = holder_of(record(holder=stored))
            assert found is not None
            assert len(found.host.encode()) <= HOST_MAX
            assert PROCESS._replace(host=found.host) == found

    def test_it_is_small(self) -> None:
        """
        Fewer than 64 bytes and the host's name, while somebody runs it; none when it has ended.
        """
        assert len(record().holder or b"") - len("web-1") < 64


@pytest.mark.parametrize("value", ["never", "", None, True])
def test_takeover_is_holder_or_lease(value: Any, tmp_path: Path) -> None:
    """
    Anything else is refused when it is declared.
    """
    with pytest.raises(ConfigurationError, match="takeover is one of holder, lease"):
        Gate("memory://", scope=SCOPE, takeover=value)
