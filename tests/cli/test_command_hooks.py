"""`onceward hooks`: sources added without their secrets, shown with what came, tried before they are trusted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceward.messaging.inbox import Inbox
from onceward.messaging.inbox.sample_event import signed_sample
from onceward.messaging.webhooks import PacSpace, Secret
from onceward.runtime.environment import REAL

TEXT = "canarysecret0123456789abcdef0123"
MODULE = """\
from onceward.messaging.inbox import handler
@handler(guarantee='{}')
def paid(event):
    raise ValueError('no')
"""
ADD = ("hooks", "add", "pac", "--scheme", "pacspace", "--handler", "command_shop:paid", "--tenant", "acme")


@pytest.fixture
def shop(store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store, a secret in the environment, and a handler that fails."""
    monkeypatch.setenv("PAC_SECRET", TEXT)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "command_shop", raising=False)
    (folder / "command_shop.py").write_text(MODULE.format("repeatable"))
    return store


def events(store: str, *ids: str) -> dict[str, int]:
    """Deliver these, and process them as the service would."""
    with Inbox(store, stored_sources=True) as inbox:
        for id in ids:
            inbox.receive("pac", *signed_sample(PacSpace(), Secret.plain(TEXT), id, now=REAL.wall_us() / 1e6))
        return inbox.drain()


def test_a_source_is_added_shown_and_replaced(shop: str, run: Callable[..., Any]) -> None:
    """
    Its secret is named, and never seen.
    """
    added = run(*ADD, "--secret-env", "PAC_SECRET", "--number-at", "member:n")
    again = run(*ADD, "--secret-env", "PAC_SECRET", "--secret-env", "OLD_SECRET", "--attempts", "1")
    shown = run("hooks", "list")
    [document] = run("hooks", "list", "--json").document["sources"]

    assert (added.code, added.out) == (0, "pac added: POST /hooks/pac\n")
    assert (again.code, again.out) == (0, "pac replaced: POST /hooks/pac\n")
    assert document["secrets"] == ["env:PAC_SECRET", "env:OLD_SECRET"]
    assert (
        document["scope"], document["scheme"], document["handler"]
    ) == ("live:acme", "pacspace", "command_shop:paid")  # fmt: skip
    assert "env:PAC_SECRET, env:OLD_SECRET" in shown.out
    assert TEXT not in added.out + added.err + shown.out + shown.err


def test_a_test_says_what_would_happen_and_does_nothing(shop: str, run: Callable[..., Any]) -> None:
    """
    Signed as the sender would, through the real verifier; whether the handler is there, and what it declares.
    """
    run(*ADD, "--secret-env", "PAC_SECRET", "--secret-env", "OLD_SECRET")

    tried = run("hooks", "test", "pac", "--json").document

    assert (tried["signature"], tried["handler"]) == ("right", "command_shop:paid (repeatable)")
    assert tried["secrets"] == {"env:PAC_SECRET": "readable", "env:OLD_SECRET": "missing"}
    assert [one["events"] for one in run("hooks", "list", "--json").document["sources"]] == [0]
    assert run("hooks", "test", "nobody").code == 1


@pytest.mark.parametrize(
    "scheme",
    [("standard",), ("standard", "--header-prefix", "svix"), ("stripe", "--tolerance", "60"), ("github",),
     ("pacspace", "--trust-unsigned-id"),
     ("hmac", "--signature-header", "X-Sig", "--id-member", "id", "--spelling", "base64", "--signature-prefix", "v=")],
)  # fmt: skip
def test_every_scheme_can_be_added_and_tried(shop: str, run: Callable[..., Any], scheme: tuple[str, ...]) -> None:
    """
    With what it takes, read back from its row.
    """
    added = run("hooks", "add", "any", "--handler", "command_shop:paid", "--tenant", "acme", "--secret-env",
                "PAC_SECRET", "--scheme", *scheme)  # fmt: skip

    assert added.code == 0
    assert run("hooks", "test", "any", "--json").document["signature"] == "right"
    with Inbox(shop, stored_sources=True) as inbox:
        [view] = inbox.sources()
    assert ("--trust-unsigned-id" in scheme) == view.stored.trust_unsigned_id
    assert ("svix" in scheme) == (getattr(view.stored.scheme, "prefix", "") == "svix")


@pytest.mark.parametrize(
    "wrong",
    [
        ("github", "--header-prefix", "svix"),
        ("standard", "--signature-prefix", "v="),
        ("standard", "--header-prefix", "A B"),
    ],
)
def test_an_option_of_another_scheme_is_refused(shop: str, run: Callable[..., Any], wrong: tuple[str, ...]) -> None:
    """
    Its sender decides; nothing is written.
    """
    added = run("hooks", "add", "any", "--handler", "command_shop:paid", "--tenant", "acme", "--secret-env",
                "PAC_SECRET", "--scheme", *wrong)  # fmt: skip

    assert (added.code, "prefix" in added.err) == (2, True)
    with Inbox(shop, stored_sources=True) as inbox:
        assert inbox.sources() == []


def test_an_event_that_was_given_up_is_requeued(shop: str, run: Callable[..., Any], folder: Path) -> None:
    """
    After the handler has been mended, say. It shows among the dead letters until it is done.
    """
    run(*ADD, "--secret-env", "PAC_SECRET", "--attempts", "1")
    assert events(shop, "e-1", "e-1")["dead"] == 1
    [letter] = run("dead", "list", "--json").document["letters"]
    [document] = run("hooks", "list", "--json").document["sources"]

    assert letter["name"] == "hooks:pac"
    assert (document["events"], document["dead"], document["repeats"]) == (1, 1, 1)
    assert run("hooks", "requeue", "pac", "e-1").out == "e-1 of pac is due again\n"
    assert run("hooks", "requeue", "pac", "e-1").code == 3
    assert events(shop)["dead"] == 1
    assert run("hooks", "requeue", "nobody", "e-1").code == 1


def test_many_repeats_are_a_sign_of_late_answers(shop: str, run: Callable[..., Any]) -> None:
    """
    The list says so: senders repeat what is not answered in time.
    """
    run(*ADD, "--secret-env", "PAC_SECRET")
    events(shop, *["e-1"] * 4)

    assert "Respond before you do the work" in run("hooks", "list").err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((), "--secret-env"),
        (("--secret-env", "not a name"), "env:NAME"),
        (("--secret-env", "A", "--handler", "os.system"), "package.module:function"),
        (("--secret-env", "A", "--tenant", "Acme"), "tenant"),
        (("--secret-env", "A", "--environment", "prod"), "environment"),
        (("--secret-env", "A", "--number-at", "body"), "header:x-sequence"),
        (("--secret-env", "A", "--keep", "0.5"), "second"),
        (("--secret-env", "A", "--keep", "nan"), "second"),
        (("--secret-env", "A", "--scheme", "hmac"), "--signature-header"),
        (("--secret-env", "A", "--scheme", "hmac", "--signature-header", "X"), "id_header"),
        (("--secret-env", "A", "--scheme", "github", "--tolerance", "3"), "tolerance"),
    ],
)
def test_what_cannot_work_is_refused(shop: str, run: Callable[..., Any], wrong: tuple[str, ...], said: str) -> None:
    """
    With what to do, and nothing written.
    """
    refused = run(*ADD, *wrong)

    assert refused.code == 2
    assert said in refused.err
    assert run("hooks", "list", "--json").document["sources"] == []


def test_a_secret_file_is_read_anew(shop: str, run: Callable[..., Any], folder: Path) -> None:
    """
    Named by its full path, whoever reads it from wherever.
    """
    (folder / "secret").write_text(TEXT + "\n")
    run(*ADD, "--secret-file", "secret")

    [reference] = run("hooks", "test", "pac", "--json").document["secrets"]

    assert reference == f"file:{folder.resolve()}/secret"
    (folder / "secret").unlink()
    gone = run("hooks", "test", "pac")
    assert (gone.code, "can be read here" in gone.err) == (2, True)
