"""The client's secret: where it comes from, for which environment it is, and where it never shows."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback

import pytest
from middleman import Middleman
from own_client_support import INSERT, ROW, TABLE, Maker

from onceward import ConfigurationError, Retry
from onceward.errors import TokenInvalid
from onceward.service.access.issued_token import issue_token
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")


def token_for(environment: str) -> str:
    """A token as it may be: well-formed, of nobody."""
    return issue_token(environment, os.urandom).text


class TestWhereItComesFrom:
    """`ONCEWARD_TOKEN`, or what was given."""

    @pytest.mark.requirement("C39")
    def test_the_token_is_taken_from_the_environment(
        self, client_of: Maker, served: Served, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Nothing in the code; blanks and line ends around it do not matter. What is given wins.
        """
        monkeypatch.setenv("ONCEWARD_TOKEN", f" {served.token}\n")
        client = client_of(served.address)
        client.db("demo", name).create()
        monkeypatch.setenv("ONCEWARD_TOKEN", token_for("test"))
        given = client_of(served.address, token=served.token)

        assert client.environment == "test"
        assert client.db("demo", name).tables() == []
        assert given.db("demo", name).tables() == []

    @pytest.mark.requirement("C39")
    @pytest.mark.parametrize("value", [None, "", "  "])
    def test_a_missing_token_is_explained(
        self, client_of: Maker, value: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Which variable, and how to come by a token.
        """
        if value is None:
            monkeypatch.delenv("ONCEWARD_TOKEN", raising=False)
        else:
            monkeypatch.setenv("ONCEWARD_TOKEN", value)

        with pytest.raises(ConfigurationError, match=r"ONCEWARD_TOKEN.*onceward token create"):
            client_of("https://sql.example.com")

    @pytest.mark.parametrize("spoiled", ["short", "typo", "line end"])
    def test_what_cannot_be_a_token_is_refused_without_repeating_it(self, client_of: Maker, spoiled: str) -> None:
        """
        Half a token, a typo, and one with a line end in the middle, which an HTTP library would show in its complaint.
        """
        token = token_for("test")
        bad = {
            "short": token[:-3],
            "typo": token[:-1] + ("0" if token[-1] != "0" else "1"),
            "line end": token[:30] + "\n" + token[30:],
        }[spoiled]

        with pytest.raises(TokenInvalid) as caught:
            client_of("https://sql.example.com", token=bad)
        assert bad[10:25] not in "".join(traceback.format_exception(caught.value))


class TestEnvironments:
    """A token for the one is no token for the other."""

    @pytest.mark.requirement("C54")
    @pytest.mark.parametrize(("of_token", "of_client"), [("test", "live"), ("live", "test")])
    def test_the_other_environments_token_is_refused_before_anything_is_sent(
        self, client_of: Maker, of_token: str, of_client: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """
        Given, or from the environment: the client is not even made, and nobody hears of it.
        """
        token = token_for(of_token)
        monkeypatch.setenv("ONCEWARD_TOKEN", token)
        with Middleman() as somebody:
            for options in ({"token": token}, {}):
                with pytest.raises(ConfigurationError, match=f"for {of_token}.*for {of_client}") as caught:
                    client_of(somebody.address, environment=of_client, **options)
                assert token[8:] not in str(caught.value)

        assert somebody.passed == []

    @pytest.mark.requirement("C54")
    @pytest.mark.parametrize("environment", ["live", "test"])
    def test_the_right_one_is_taken(self, client_of: Maker, environment: str) -> None:
        """
        So that the refusal above is no refusal of everything.
        """
        assert environment == client_of("https://h", token=token_for(environment), environment=environment).environment
        assert environment == client_of("https://h", token=token_for(environment)).environment

    @pytest.mark.parametrize("environment", ["prod", "LIVE", ""])
    def test_an_environment_is_live_or_test(self, client_of: Maker, environment: str) -> None:
        """
        A word that means nothing would check nothing.
        """
        with pytest.raises(ConfigurationError, match="live, test"):
            client_of("https://h", token=token_for("live"), environment=environment)


class TestWhereItDoesNotShow:
    """Not in a repr, a log or an error."""

    @pytest.mark.requirement("C39")
    def test_no_log_repr_or_error_has_it(
        self, client_of: Maker, served: Served, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Everything is logged that anybody logs, through good calls, refusals and lost answers.
        """
        caplog.set_level(logging.DEBUG)
        secret = served.token.split("_")[3][:33]
        told = ""
        with Middleman(served.address) as between:
            client = client_of(between.address, token=served.token, retry=Retry(attempts=2, base=0.001))
            db = client.db("demo", name)
            db.create()
            db.query(TABLE)
            between.spoil = ["lose answer", "lose answer", "", (503, {}, b""), (401, {}, b"{}"), (500, {}, b"")]
            for _ in range(5):
                try:
                    db.query(INSERT, ROW, idempotency_key="evt-1")
                except Exception as error:
                    told += "".join(traceback.format_exception(error))
            told += f"{client!r} {client.__dict__!r} {db!r}"

        assert "Unreachable" in told
        assert [record for record in caplog.records if secret in record.getMessage()] == []
        assert secret not in told
        assert served.token not in told
        assert any(secret in one.headers["authorization"] for one in between.passed)


def test_a_client_needs_none_of_the_libraries_of_a_service() -> None:
    """
    With an HTTP library alone it can be imported, made and asked: no server, no driver, no codec of one.
    """
    script = """
import sys
for name in ("starlette", "msgspec", "uvicorn", "psycopg", "redis", "pydantic"):
    sys.modules[name] = None
from onceward import Client, Retry
from onceward.errors import ServiceUnreachable
from onceward.service.access.issued_token import issue_token
client = Client("http://127.0.0.1:9", token=issue_token("test", lambda size: bytes(size)).text, retry=Retry(attempts=1))
for ask in (lambda: client.db("a", "b").query("SELECT 1"), lambda: client.balance.derive("c")):
    try:
        ask()
    except ServiceUnreachable:
        print("asked")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert done.stdout == "asked\nasked\n", done.stderr
