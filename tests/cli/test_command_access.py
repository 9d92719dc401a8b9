"""`onceward token` and `onceward tenant`: secrets shown once, money added once, tenants erased on their name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import server_stores as stores

from onceward import Gate
from onceward.errors import TokenInvalid
from onceward.protocol.token_format import PATTERN
from onceward.runtime.environment import REAL
from onceward.service.access import Access

pytestmark = [pytest.mark.dose(1, of="kind"), pytest.mark.slow]

PEPPER = "pepper-canary-" + "0123456789abcdef" * 3
TABLES = ("tenants", "tokens", "reservations", "topups", "erasures", "access")


@pytest.fixture(params=[one for one in stores.wanted() if one != "redis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Where tokens can be kept."""
    return str(request.param)


@pytest.fixture(autouse=True)
def quick(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pepper, no old tables, and an erasure that need not wait for other processes: there are none."""
    monkeypatch.setenv("ONCEWARD_PEPPER", PEPPER)
    monkeypatch.setattr(type(REAL), "sleep", lambda self, seconds: None)
    yield
    if kind == "postgres":
        stores.admin().execute(f"DROP TABLE IF EXISTS {', '.join(f'onceward_{one}' for one in TABLES)}".encode())


@pytest.fixture
def acme(store: str, run: Any) -> str:
    """A tenant that pays in advance."""
    assert run("tenant", "create", "acme", "--prepaid").code == 0
    return "acme"


def new_token(run: Any, *options: str) -> str:
    """A new token, as a script takes it."""
    ran = run("token", "create", "--tenant", "acme", *options)
    assert ran.code == 0, ran.err
    return str(ran.out.strip())


def is_valid(store: str, text: str) -> bool:
    """Whether a token is believed."""
    with Access.open(store) as access:
        try:
            access.authenticate(text)
        except TokenInvalid:
            return False
        return True


class TestTokens:
    """Made, listed, rotated, revoked."""

    def test_the_secret_is_the_whole_of_stdout(self, acme: str, store: str, run: Any) -> None:
        """
        So that a script can take it; stderr has the id, and never the secret.
        """
        ran = run("token", "create", "--tenant", acme)

        assert re.fullmatch(PATTERN + "\n", ran.out)
        assert ran.out[8:20] in ran.err
        assert ran.out[21:54] not in ran.err
        assert is_valid(store, ran.out.strip())

    def test_as_json_it_is_one_document(self, acme: str, run: Any) -> None:
        """
        With everything about the token.
        """
        ran = run(
            *("token", "create", "--tenant", acme, "--environment", "test", "--role", "read"),
            *("--database", "shop", "--database", "logs", "--expires", "60", "--json"),
        )

        document = ran.document
        assert document["token"].startswith(f"ow_test_{document['id']}_")
        assert (document["role"], document["databases"], document["state"]) == ("read", ["logs", "shop"], "active")
        assert document["expiresAt"] is not None

    def test_the_secret_is_shown_once(self, acme: str, run: Any, folder: Path) -> None:
        """
        No other command, no error and no file has it, nor a digest of it, nor the pepper.
        """
        texts = [new_token(run) for _ in range(2)]
        ids = [text[8:20] for text in texts]
        rotated = run("token", "rotate", ids[0])
        outputs = [
            *(run("token", "list", *more) for more in ([], ["--json"], ["--tenant", acme])),
            run("token", "revoke", ids[1], "--json"),
            run("token", "rotate", ids[1]),
            run("token", "rotate", ids[0], "--json"),
            run("token", "revoke", texts[1]),
            run("tenant", "show", acme),
        ]

        shown = "".join(ran.out + ran.err for ran in outputs) + rotated.err
        files = b"".join(file.read_bytes() for file in folder.iterdir()).decode("latin-1")

        for secret in (texts[0][21:54], texts[1][21:54], rotated.out[21:54], PEPPER):
            assert (shown.count(secret), files.count(secret)) == (0, 0)
        assert ids[0] in shown
        assert "digest" not in shown

    def test_a_rotation_says_when_the_old_one_ends(self, acme: str, store: str, run: Any) -> None:
        """
        After the overlap, or at once; rotating it again is refused.
        """
        old = new_token(run)

        ran = run("token", "rotate", old[8:20], "--overlap", "600")

        assert re.search(rf"{old[8:20]} ends at \d{{4}}-", ran.err)
        assert [is_valid(store, text) for text in (old, ran.out.strip())] == [True, True]
        again = run("token", "rotate", old[8:20])
        assert (again.code, again.out, ran.out[8:20] in again.err) == (3, "", True)
        last = run("token", "rotate", ran.out[8:20], "--overlap", "0")
        assert [is_valid(store, text) for text in (ran.out.strip(), last.out.strip())] == [False, True]

    def test_a_revoked_token_is_turned_away(self, acme: str, store: str, run: Any) -> None:
        """
        Revoking it again does no harm.
        """
        text = new_token(run)

        assert [run("token", "revoke", text[8:20]).code for _ in range(2)] == [0, 0]
        assert not is_valid(store, text)
        assert "revoked" in run("token", "list").out

    def test_a_list_goes_page_by_page(self, acme: str, run: Any) -> None:
        """
        In order of id; all of them, each once.
        """
        ids = sorted(new_token(run)[8:20] for _ in range(3))
        first = run("token", "list", "--limit", "2", "--json").document
        rest = run("token", "list", "--limit", "2", "--after", first["next"], "--json").document

        assert ids == [one["id"] for one in (*first["tokens"], *rest["tokens"])]
        assert None is rest["next"]

    @pytest.mark.parametrize("kind", ["sqlite"])
    @pytest.mark.parametrize(
        ("typed", "code", "word"),
        [
            (("token", "create", "--tenant", "nobody"), 1, "tenant_not_found"),
            (("token", "create", "--tenant", "No Body"), 2, "usage"),
            (("token", "create", "--tenant", "acme", "--role", "root"), 2, "usage"),
            (("token", "create", "--tenant", "acme", "--expires", "-1"), 2, "configuration"),
            (("token", "create"), 2, "usage"),
            (("token", "revoke", "000000000000"), 1, "token_not_found"),
            (("token", "rotate", "000000000000"), 1, "token_not_found"),
            (("token", "rotate", "short"), 2, "usage"),
            (("token", "list", "--store", "memory://"), 2, "configuration"),
        ],
    )
    def test_a_mistake_is_told(self, acme: str, run: Any, typed: tuple[str, ...], code: int, word: str) -> None:
        """
        One line, or one document; an exit code; nothing on stdout.
        """
        ran = run(*typed, "--json")

        assert (code, "", word) == (ran.code, ran.out, json.loads(ran.err)["code"])

    def test_before_the_first_tenant_there_is_nothing(self, store: str, run: Any) -> None:
        """
        And looking makes nothing.
        """
        ran = run("token", "list")

        assert (ran.code, ran.out) == (2, "")
        assert "onceward tenant create" in ran.err


class TestTenants:
    """Made, shown, topped up, limited."""

    def test_a_tenant_is_made_once(self, acme: str, run: Any) -> None:
        """
        Again leaves it as it is.
        """
        again = run("tenant", "create", acme, "--records", "5", "--json")

        assert (again.code, again.document["quotaRecords"]) == (0, None)
        assert "nothing was changed" in again.err

    def test_a_retried_top_up_counts_once(self, acme: str, run: Any) -> None:
        """
        Exact to the micro-unit; the same key gives the same answer, another amount under it is refused.
        """
        first = run("tenant", "topup", acme, "25.000001", "--key", "invoice-1", "--json")
        again = run("tenant", "topup", acme, "25.000001", "--key", "invoice-1", "--json")
        other = run("tenant", "topup", acme, "26", "--key", "invoice-1", "--json")
        more = run("tenant", "topup", acme, "0.5", "--key", "invoice-2")

        assert {
            "tenant": acme,
            "amountMicro": 25_000_001,
            "balanceMicro": 25_000_001,
            "replayed": False,
        } == first.document
        assert {**first.document, "replayed": True} == again.document
        assert (other.code, json.loads(other.err)["code"]) == (3, "key_reused")
        assert "balance  25.500001" in more.out
        assert run("tenant", "show", acme, "--json").document["balanceMicro"] == 25_500_001

    @pytest.mark.parametrize("kind", ["sqlite"])
    @pytest.mark.parametrize(
        "amount", ["0", "-5", "1e3", "1.0000001", "inf", "nan", "1_000", "٥", "", "1.", "1000000000"]
    )
    def test_an_amount_is_money(self, acme: str, run: Any, amount: str) -> None:
        """
        Nothing is added for anything else.
        """
        ran = run("tenant", "topup", acme, amount, "--key", "k")

        assert (ran.code, ran.out) == (2, "")
        assert run("tenant", "show", acme, "--json").document["balanceMicro"] == 0

    def test_a_balance_has_to_be_asked_for(self, store: str, run: Any) -> None:
        """
        It is a limit.
        """
        run("tenant", "create", "free")

        assert run("tenant", "topup", "free", "5", "--key", "k").code == 3
        assert run("tenant", "topup", "free", "5", "--key", "k", "--prepaid").code == 0
        assert run("tenant", "topup", "nobody", "5", "--key", "k").code == 1

    def test_quotas_are_set_one_by_one(self, acme: str, run: Any) -> None:
        """
        What is not spoken of stays; none takes a limit away.
        """
        for typed in (("--records", "10"), ("--bytes", "2000"), ("--records", "none")):
            ran = run("tenant", "quota", acme, *typed, "--json")
            assert ran.code == 0

        assert (ran.document["quotaRecords"], ran.document["quotaBytes"]) == (None, 2000)
        assert run("tenant", "quota", acme).code == 2
        assert run("tenant", "quota", acme, "--records", "1.5").code == 2
        assert run("tenant", "quota", "nobody", "--records", "1").code == 1

    def test_a_list_shows_everybody(self, acme: str, run: Any) -> None:
        """
        In order of name, page by page.
        """
        run("tenant", "create", "globex", "--records", "7")

        first = run("tenant", "list", "--limit", "1", "--json").document
        rest = run("tenant", "list", "--after", first["next"], "--json").document

        assert [one["name"] for one in (*first["tenants"], *rest["tenants"])] == ["acme", "globex"]
        assert "0 of 7" in run("tenant", "list").out


class TestErasing:
    """On its name, typed twice."""

    @pytest.fixture
    def holding(self, acme: str, store: str, run: Any) -> Iterator[None]:
        """Records and tokens of two tenants whose names begin alike."""
        run("tenant", "create", "acme2")
        for name in ("acme", "acme2"):
            run("token", "create", "--tenant", name)
            with Gate(store, scope=f"live:{name}") as gate:
                gate.run("op", lambda: 1)
        return

    def left(self, run: Any) -> tuple[list[str], list[str]]:
        records = run("records", "list", "--json").document["records"]
        tokens = run("token", "list", "--json").document["tokens"]
        return sorted(one["scope"] for one in records), sorted(one["tenant"] for one in tokens)

    @pytest.mark.parametrize(("options", "typed"), [(["--yes", "acme"], b""), ([], b"acme\n")])
    def test_it_is_gone(self, holding: None, run: Any, options: list[str], typed: bytes) -> None:
        """
        Its records, its tokens; another's stay. What is left says when.
        """
        ran = run("tenant", "erase", "acme", *options, "--json", stdin=typed)

        assert (ran.code, ran.document["records"], ran.document["others"]) == (0, 1, 1)
        assert self.left(run) == (["live:acme2"], ["acme2"])
        assert ran.document["erasedAt"] == run("tenant", "show", "acme", "--json").document["erasedAt"]
        assert run("tenant", "erase", "acme", "--yes", "acme").code == 0

    @pytest.mark.parametrize("kind", ["sqlite"])
    @pytest.mark.parametrize(
        ("options", "typed"), [(["--yes", "acme2"], b""), ([], b"acm\n"), ([], b""), ([], b"yes\n")]
    )
    def test_without_its_name_nothing_is_erased(
        self, holding: None, run: Any, options: list[str], typed: bytes
    ) -> None:
        """
        Another name, half of it, nothing at all.
        """
        before = self.left(run)

        ran = run("tenant", "erase", "acme", *options, stdin=typed)

        assert (ran.code, ran.out) == (2, "")
        assert before == self.left(run)

    def test_nobody_cannot_be_erased(self, acme: str, run: Any) -> None:
        """
        A typo is told before anything is asked.
        """
        assert run("tenant", "erase", "acm", "--yes", "acm").code == 1

    def test_progress_is_told(self, holding: None, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        To the line of progress, which a terminal is shown.
        """
        told: list[str] = []
        monkeypatch.setattr(
            "onceward.cli.progress.ProgressLine.__call__", lambda line, share, words: told.append(words)
        )

        run("tenant", "erase", "acme", "--yes", "acme")

        assert "looked at 2 records, erased 1 of this tenant" in told


def test_on_a_server_a_pepper_is_asked_for(
    store: str, kind: str, run: Any, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """
    Before anything is made; beside a SQLite file one is made.
    """
    monkeypatch.delenv("ONCEWARD_PEPPER")

    ran = run("tenant", "create", "acme")

    if kind == "sqlite":
        assert (ran.code, (folder / "agent.access.pepper").exists()) == (0, True)
    else:
        assert (ran.code, "ONCEWARD_PEPPER" in ran.err) == (2, True)
