"""The six failure modes of the third document: each is found, named, and said what to do about."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from middleman import Middleman
from own_client_support import Maker

from onceward import Client, ConfigurationError, Gate, KeyReused, OncewardError, Retry, recipe, stop_of
from onceward.client import Reference
from onceward.keys import lint_key, lint_recipe
from onceward.messaging.emitter import Cadence
from onceward.messaging.webhooks import warn_if_slow
from onceward.retry import StopReason
from onceward.testing.clock import StillEnvironment
from service.service_support import Served

pytestmark = pytest.mark.dose(1, of="client_of")


class TestKeysOfSeveralOperations:
    """Reusing the same idempotency key across different logical operations."""

    @pytest.mark.requirement("C60")
    def test_a_recipe_that_would_share_keys_is_found_before_and_a_shared_key_when_it_happens(
        self, client_of: Maker, tmp_path: Path
    ) -> None:
        """
        The lint says K2; the service (and a local file) refuses the second operation, and tells which key to change.
        """
        db = client_of(f"sqlite:///{tmp_path}/shop.db").db("acme", "shop")
        db.query("SELECT 1", idempotency_key="customer-17")

        with pytest.raises(KeyReused) as caught:
            db.query("SELECT 2", idempotency_key="customer-17")
        assert caught.value.retry == "new-key"
        assert [one.code for one in lint_recipe("{customer_id}")] == ["K2"]
        assert [one.code for one in lint_key("customer-17")] == ["K2"]
        assert lint_recipe("charge:{order_id}") == []


class TestRefusalsRetried:
    """Retrying 400 or 401 responses, multiplying failures without fixing them."""

    @pytest.mark.requirement("C60")
    @pytest.mark.parametrize("status", [400, 401, 403, 404, 409])
    def test_a_refusal_is_not_sent_again_and_says_so(self, client_of: Maker, served: Served, status: int) -> None:
        """
        One request, however many attempts there are; the error carries why.
        """
        with Middleman() as between:
            between.spoil = [(status, {}, b'{"detail": "no"}')] * 3
            db = client_of(between.address, token=served.token, retry=Retry(attempts=3, base=0.001)).db("demo", "shop")
            with pytest.raises(OncewardError) as caught:
                db.query("SELECT 1", idempotency_key="k")

        stop = stop_of(caught.value)
        assert len(between.passed) == 1
        assert stop is not None
        assert (stop.reason, stop.attempts) == (StopReason.NEVER, 1)


class TestRetriesWithoutEnd:
    """Unbounded retries that continue for hours and mask the underlying error."""

    @pytest.mark.requirement("C60")
    @pytest.mark.parametrize("options", [{"attempts": 100}, {"elapsed": float("inf")}, {"elapsed": -1}])
    def test_a_policy_without_a_ceiling_cannot_be_declared(self, options: dict[str, Any]) -> None:
        """
        Neither on attempts nor on time; many attempts have to be said twice.
        """
        with pytest.raises(ConfigurationError):
            Retry(**options)


class TestReferencesFromTheClock:
    """Building references from wall-clock time alone, so retries produce duplicates."""

    @pytest.mark.requirement("C60")
    @pytest.mark.parametrize("name", ["timestamp", "now", "attempt", "uuid"])
    def test_a_reference_that_changes_is_refused_when_it_is_declared(
        self, served: Served, tmp_path: Path, name: str
    ) -> None:
        """
        By the recipe, by the emitter, and by the lint, which also looks at references that are there already.
        """
        source = f"acme:call:{{{name}}}"
        with (
            Client(served.address, token=served.token) as client,
            Gate(f"sqlite:///{tmp_path}/spool.db", scope="test:demo") as gate,
            pytest.raises(ConfigurationError, match=name),
        ):
            client.balance.emitter(gate, "usage", reference=source, retry=Retry(), cadence=Cadence())
        with pytest.raises(ConfigurationError, match=name):
            recipe(source)
        assert {"K1", "K3"} & {one.code for one in lint_recipe(source)}
        assert [one.code for one in lint_key("acme:call:1794808207")] == ["K1"]
        assert lint_key(Reference("acme", "call", "2026-11").of(17)) == []


class TestSlowHandlers:
    """Letting a slow webhook handler run synchronously, triggering retries and duplicate deliveries."""

    @pytest.mark.requirement("C60")
    @pytest.mark.parametrize("colour", ["blocking", "awaiting"])
    @pytest.mark.parametrize(("takes", "warned"), [(3.0, 1), (0.2, 0)])
    def test_a_handler_that_works_before_it_answers_is_named(
        self, colour: str, takes: float, warned: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        """
        Its answer is the same, and so are its errors.
        """
        caplog.set_level(logging.WARNING)
        environment = StillEnvironment()

        @warn_if_slow(environment=environment)
        def handler(event: str) -> str:
            environment.sleep(takes)
            return event

        @warn_if_slow(environment=environment)
        async def later(event: str) -> str:
            await environment.asleep(takes)
            return event

        assert (handler("evt_1") if colour == "blocking" else asyncio.run(later("evt_1"))) == "evt_1"
        assert warned == sum("took 3 s to respond" in record.getMessage() for record in caplog.records)
        assert all("respond with 200" in record.getMessage() for record in caplog.records)

    def test_an_error_of_the_handler_is_its_own(self) -> None:
        """
        A diagnostic changes nothing; one without sense is refused.
        """

        @warn_if_slow()
        def handler() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            handler()
        with pytest.raises(ConfigurationError):
            warn_if_slow(0)
