"""Live and test never meet, and a credential is never shown."""

from __future__ import annotations

import logging
import traceback
from base64 import b64encode
from typing import Any

import pytest
from client_support import EXTENDED, Web, sent

from onceward import ConfigurationError, Gate, Retry
from onceward.errors import KeyInvalid, RateLimitError
from onceward.http import check_credential, environment_of
from onceward.testing import no_sleeping
from servers.faults import FaultServer, respond

OK = respond(200, body=b"{}")
KEY = {"Idempotency-Key": "charge:o-17"}
SECRET = "sk_live_51NeverShown"


class TestCredentialsThatSayWhereTheyBelong:
    """
    `pk_test_...` is for the sandbox, `pk_live_...` for production.
    """

    @pytest.mark.requirement("C54")
    @pytest.mark.parametrize("prefix", ["pk", "sk", "ow", "rk"])
    @pytest.mark.parametrize(("of", "other"), [("test", "live"), ("live", "test")])
    @pytest.mark.parametrize("made", EXTENDED)
    def test_are_refused_by_a_client_of_the_other_environment(
        self, made: str, prefix: str, of: str, other: str
    ) -> None:
        """
        When the client is made. The message has no credential in it.
        """
        web, credential = Web(made), f"{prefix}_{of}_51NeverShown"
        with pytest.raises(ConfigurationError, match=f"for {of}") as caught:
            web.ready(other, api_key=credential)

        assert "NeverShown" not in "".join(traceback.format_exception(caught.value))
        with web.using(web.ready(of, api_key=credential, base_url="http://127.0.0.1")):
            pass

    @pytest.mark.requirement("C54")
    @pytest.mark.parametrize("way", ["bearer", "basic", "x-api-key"])
    def test_are_refused_on_a_request_as_well(self, web: Web, policy: Retry, way: str) -> None:
        """
        However the credential travels: nothing is sent.
        """
        credential = "sk_test_51NeverShown"
        headers = {
            "bearer": {"Authorization": f"Bearer {credential}"},
            "basic": {"Authorization": "Basic " + b64encode(f"{credential}:".encode()).decode()},
            "x-api-key": {"X-Api-Key": credential},
        }[way]
        with FaultServer(OK) as server, web.client(retry=policy, environment="live") as sender:
            with pytest.raises(ConfigurationError) as caught:
                sender("GET", server.url, headers=headers)

            assert server.requests == []
        assert "NeverShown" not in str(caught.value)

    def test_are_recognised_by_their_beginning_only(self) -> None:
        """
        One that does not say is nobody's business.
        """
        found = [environment_of(text) for text in ("pk_test_1", "sk_live_1", "my_test_", "token", "a live_one")]

        assert found == ["test", "live", "test", None, None]
        assert check_credential("token", "live") == "token"

    @pytest.mark.parametrize("bad", ["", "  ", None])
    def test_an_empty_one_is_none(self, bad: Any) -> None:
        """
        An empty variable must not make an anonymous client.
        """
        with pytest.raises(ConfigurationError):
            check_credential(bad, "live")


class TestKeysOfTwoEnvironments:
    """
    The same key in test and in live is two keys.
    """

    @pytest.mark.requirement("C55")
    def test_carry_their_environment_once(self, web: Web, policy: Retry) -> None:
        """
        `live:` is put in front, and not twice.
        """
        with FaultServer(OK) as server:
            for environment in ("live", "test"):
                with web.client(retry=policy, environment=environment) as sender:
                    sender("POST", server.url, headers=KEY, content=b"x")
                    sender("POST", server.url, headers={"Idempotency-Key": f"{environment}:charge:o-17"}, content=b"x")
            keys = [one.key for one in sent(server)]
        assert keys == ["live:charge:o-17"] * 2 + ["test:charge:o-17"] * 2

    def test_of_the_other_are_refused(self, web: Web, policy: Retry) -> None:
        """
        A key or an operation of test does nothing in live.
        """
        with FaultServer(OK) as server, web.client(retry=policy, environment="live") as sender:
            with pytest.raises(KeyInvalid):
                sender("POST", server.url, headers={"Idempotency-Key": "test:charge"}, content=b"x")
            gate = Gate("memory://", scope="test:acme")
            with pytest.raises(ConfigurationError, match="environment"):
                gate.run("charge", lambda: sender("POST", server.url, content=b"x"), guarantee="keyed")

            assert server.requests == []


class TestAClientMadeReady:
    """
    `client(environment, ...)`: credential, retries, timeout and typed limits in one line.
    """

    @pytest.fixture(params=EXTENDED)
    def web(self, request: pytest.FixtureRequest) -> Web:
        return Web(request.param)

    @pytest.mark.requirement("C38")
    def test_has_two_retries_and_thirty_seconds(self, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        And takes the credential from the environment variable.
        """
        monkeypatch.setenv("ONCEWARD_API_KEY", SECRET)
        with FaultServer(respond(503)) as server, web.using(web.ready("live", base_url=server.url)) as sender:
            assert sender.timeout.read == 30
            with no_sleeping():
                assert sender.post("/charges", headers=KEY, content=b"x").status_code == 503
            seen = sent(server)
        assert [one.headers["authorization"] for one in seen] == [f"Bearer {SECRET}"] * 3
        assert {one.key for one in seen} == {"live:charge:o-17"}

    @pytest.mark.requirement("C38", "A37")
    def test_takes_other_numbers(self, web: Web) -> None:
        """
        `max_retries=0`: one attempt; `timeout` is the attempt's. A 429 is a `RateLimitError`.
        """
        options: dict[str, Any] = {"api_key": SECRET, "max_retries": 0, "timeout": 7}
        with FaultServer(respond(429, {"Retry-After": "12"})) as server:
            with web.using(web.ready("live", base_url=server.url, **options)) as sender:
                assert sender.timeout.read == 7
                with pytest.raises(RateLimitError) as caught:
                    sender.get("/")
            assert len(server.requests) == 1
        assert caught.value.retry_after_seconds == 12

    def test_is_not_made_without_a_credential(self, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        The message names the variable.
        """
        monkeypatch.delenv("ONCEWARD_API_KEY", raising=False)
        with pytest.raises(ConfigurationError, match="ONCEWARD_API_KEY"):
            web.ready("live")
        monkeypatch.setenv("BANK_KEY", SECRET)
        with web.using(web.ready("live", api_key_variable="BANK_KEY")) as sender:
            assert sender.headers["authorization"].endswith("NeverShown")


class TestNothingIsShown:
    """
    Neither a credential nor a key is in a representation, an error, an event or a log.
    """

    def test_wherever_one_looks(self, web: Web, still: Any, caplog: pytest.LogCaptureFixture) -> None:
        """
        Every hook, every log line at every level, the traceback, the representations.
        """
        told: list[str] = []
        policy = Retry(
            environment=still,
            on_stop=lambda stop: told.append(repr(stop._replace(problem=None, key=None))),
            on_auth=lambda stop: told.append(repr(stop._replace(problem=None, key=None))),
        )
        headers = {"Authorization": f"Bearer {SECRET}", **KEY}
        transport = web.transport(retry=policy)
        with FaultServer(respond(401), "close_after_read") as server:
            with caplog.at_level(logging.DEBUG, "onceward"), web.client(retry=policy) as sender:
                sender("POST", server.url, headers=headers, content=b"x")
                with pytest.raises(web.errors("RemoteProtocolError")) as caught:
                    sender("POST", server.url, headers=headers, content=b"x")
            ours = [record.getMessage() for record in caplog.records if record.name.startswith("onceward")]

        notes = caught.value.__notes__
        raised = traceback.format_exception(caught.value)
        assert len(told) >= 2
        assert len(ours) == 2
        assert "NeverShown" not in "".join((*told, *ours, *notes, *raised, repr(transport)))
        assert "charge:o-17" not in "".join((*ours, *notes))
