"""
Stripe's own SDKs, stripe-python and stripe-node, against the middleware with profile "stripe".

To these SDKs an answer without `error` in its body is a success, whatever its status: a refusal in any other shape is
an order that seems to be paid.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from servers.node import needed_packages, run_node
from servers.proxy import Proxy

pytestmark = pytest.mark.dose(1, of="shop")

HERE = Path(__file__).parent
SECONDS_MAX = 30
WIRES = ("asgi", "wsgi", "django")


class Shop(NamedTuple):
    """A running API."""

    port: int
    folder: Path

    def effects(self, amount: int) -> int:
        """How often a charge of this amount was made."""
        found = self.folder / "effects"
        return found.read_text().splitlines().count(str(amount)) if found.exists() else 0

    def wait_for(self, amount: int) -> None:
        """Wait until a charge of this amount is being made."""
        for _ in range(SECONDS_MAX * 100):
            if self.effects(amount):
                return
            threading.Event().wait(0.01)
        raise AssertionError("the charge was never begun")


@pytest.fixture(scope="module", params=WIRES)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The API, on each kind of server."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, str(HERE / "stripe_shop.py"), request.param, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the shop did not start"
        yield Shop(int(line), folder)
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()


Charge = Callable[..., dict[str, Any]]
_amounts = count(100)


@pytest.fixture
def amount() -> int:
    """An amount (and key) that no other test has."""
    return next(_amounts)


def by_python(port: int, amount: int, key: str, how: str = "well", retries: int = 0) -> dict[str, Any]:
    """A charge by stripe-python, as plain data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import stripe
    client = stripe.StripeClient(
        "sk_test_x",
        base_addresses={"api": f"http://127.0.0.1:{port}"},
        max_network_retries=retries,
        http_client=stripe.RequestsClient(),
    )
    try:
        made = client.v1.charges.create(
            {"amount": amount, "currency": "eur", "description": how}, {"idempotency_key": key}
        )
    except stripe.StripeError as error:
        body: Any = error.json_body or {}
        told = body.get("error", {})
        kind = type(error).__name__
        return {"error": kind, "type": told.get("type"), "code": told.get("code"), "status": error.http_status}
    answer: Any = made.last_response
    return {"id": made.id, "replayed": answer.headers.get("idempotent-replayed") == "true"}


def by_node(port: int, amount: int, key: str, how: str = "well", retries: int = 0) -> dict[str, Any]:
    """The same by stripe-node."""
    call = json.dumps({"amount": amount, "key": key, "how": how, "retries": retries})
    (told,) = json.loads(run_node(HERE / "charge.cjs", str(port), call))
    return dict(told)


@pytest.fixture(params=["stripe-python", "stripe-node"])
def charge(request: pytest.FixtureRequest) -> Charge:
    """Stripe's SDKs, one after the other."""
    if request.param == "stripe-node":
        needed_packages()
        return by_node
    return by_python


IDEMPOTENCY = ("IdempotencyError", "StripeIdempotencyError")
API = ("APIError", "StripeAPIError")


def test_a_charge_is_made_once_and_its_replay_is_known_as_one(shop: Shop, charge: Charge, amount: int) -> None:
    """
    Both calls resolve to the same charge.
    """
    first, again = (charge(shop.port, amount, f"k-{amount}") for _ in range(2))

    assert first == {"id": f"ch_{amount}_1", "replayed": False}
    assert again == {"id": f"ch_{amount}_1", "replayed": True}
    assert shop.effects(amount) == 1


@pytest.mark.fault("stripes-sdks-get-problems")
def test_another_request_under_the_same_key_is_stripes_idempotency_error(
    shop: Shop, charge: Charge, amount: int
) -> None:
    """
    400, and the error class that Stripe's own API makes the SDK raise.
    """
    charge(shop.port, amount, f"k-{amount}")
    refused = charge(shop.port, amount, f"k-{amount}", "otherwise")

    assert refused.get("error") in IDEMPOTENCY
    assert (refused["type"], refused["code"], refused["status"]) == ("idempotency_error", "key_reused", 400)
    assert shop.effects(amount) == 1


def test_a_duplicate_in_flight_is_an_error_and_a_retry_gets_the_answer(shop: Shop, charge: Charge, amount: int) -> None:
    """
    409 with Stripe's own code; with retries switched on, the SDK waits and has the first one's answer.
    """
    (shop.folder / "go").unlink(missing_ok=True)
    told: list[dict[str, Any]] = []
    arguments = (shop.port, amount, f"k-{amount}", "wait")
    first = threading.Thread(target=lambda: told.append(by_python(*arguments)), daemon=True)
    first.start()
    shop.wait_for(amount)
    refused = charge(*arguments)
    (shop.folder / "go").touch()
    first.join(SECONDS_MAX)
    again = charge(*arguments, retries=2)

    assert refused.get("error") in API
    assert (refused["type"], refused["code"]) == ("idempotency_error", "idempotency_key_in_use")
    assert refused["status"] == 409
    assert told == [{"id": f"ch_{amount}_1", "replayed": False}]
    assert again == {"id": f"ch_{amount}_1", "replayed": True}
    assert shop.effects(amount) == 1


def test_a_handler_that_failed_is_an_error_and_is_not_run_again(shop: Shop, charge: Charge, amount: int) -> None:
    """
    500 and remembered: the SDK is told not to repeat it, and a repeat would hear the same.
    """
    first, again = (charge(shop.port, amount, f"k-{amount}", "raise", retries=2) for _ in range(2))

    assert first.get("error") in API
    assert first == again
    assert (first["type"], first["code"], first["status"]) == ("api_error", "handler_failed", 500)
    assert shop.effects(amount) == 1


def test_after_a_cut_connection_the_sdk_retries_by_itself_and_gets_the_replay(
    shop: Shop, charge: Charge, amount: int
) -> None:
    """
    The answer is lost on its way; the SDK sends the same key again, and nothing is charged twice.
    """
    with Proxy(shop.port) as proxy:
        proxy.lose_answers(1)
        made = charge(proxy.port, amount, f"k-{amount}", retries=1)

    assert made == {"id": f"ch_{amount}_1", "replayed": True}
    assert shop.effects(amount) == 1
