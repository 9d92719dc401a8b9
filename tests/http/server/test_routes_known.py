"""The application's own routes: a `Route` that matches nothing is told, and decorators say what a `Route` would."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.routing import Route as StarletteRoute
from starlette.testclient import TestClient
from wires import Django

from onceward import AsyncGate, Gate
from onceward.http import Route, idempotent, not_idempotent
from onceward.http.asgi import IdempotencyMiddleware as AsgiMiddleware
from onceward.http.server.app_routes import find_app_routes
from onceward.http.wsgi import IdempotencyMiddleware as WsgiMiddleware

ROUTES = [
    Route("/chargs", guarantee="keyed"),
    Route("/charges", guarantee="keyed"),
    Route("/api/orders/{number}", guarantee="atomic"),
    Route("/api/{rest:path}", skip=True),
    Route("/nowhere/{rest:path}", skip=True),
]
LOST = ["Route('/chargs')", "Route('/nowhere/{rest:path}')"]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The routes that the log complains of."""
    found = [
        one.getMessage() for one in caplog.records if one.levelno == logging.WARNING and "matches no route" in one.msg
    ]
    return [one.split(" ")[1] for one in found]


def options(**more: Any) -> dict[str, Any]:
    return {"gate": AsyncGate("memory://", scope="test:a"), "scope": "test:a", **more}


def fastapi_app(**more: Any) -> FastAPI:
    app, router = FastAPI(), APIRouter()

    @router.post("/orders/{number}")
    @idempotent(require_key=True)
    def order(number: int) -> dict[str, int]:
        return {"order": number}

    @app.post("/charges")
    def charge() -> dict[str, str]:
        return {}

    @app.post("/hooks")
    @not_idempotent
    def hook() -> dict[str, str]:
        return {}

    app.include_router(router, prefix="/api")
    app.add_middleware(AsgiMiddleware, **options(**more))
    return app


def starlette_app(**more: Any) -> Starlette:
    async def answer(request: Request) -> JSONResponse:
        return JSONResponse({})

    order = idempotent(require_key=True)(answer_of())
    inner = [StarletteRoute("/orders/{number:int}", order, methods=["POST"])]
    app = Starlette(
        routes=[
            StarletteRoute("/charges", answer, methods=["POST"]),
            StarletteRoute("/hooks", not_idempotent(answer_of()), methods=["POST"]),
            Mount("/api", routes=inner),
        ]
    )
    app.add_middleware(AsgiMiddleware, **options(**more))
    return app


def answer_of() -> Any:
    """A handler of its own."""

    async def answer(request: Request) -> JSONResponse:
        return JSONResponse({})

    return answer


@pytest.mark.fault("a-route-that-matches-nothing-is-silent")
@pytest.mark.parametrize("make", [fastapi_app, starlette_app], ids=["fastapi", "starlette"])
def test_a_route_that_matches_nothing_is_told_when_the_application_starts(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    With the path that may be meant; those that match something are not mentioned.
    """
    with TestClient(make(routes=ROUTES)):
        found = warned(caplog)

    assert found == LOST
    assert "did you mean '/charges'?" in caplog.text


def test_flask_and_django_are_asked_when_their_first_request_comes(caplog: pytest.LogCaptureFixture) -> None:
    """
    Flask knows its rules, and Django its URLs.
    """
    app = Flask("shop")
    app.add_url_rule("/charges", view_func=dict, methods=["POST"], endpoint="charge")
    app.add_url_rule("/api/orders/<int:number>", view_func=lambda number: {}, methods=["POST"], endpoint="order")
    gate = Gate("memory://", scope="test:a")
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, gate=gate, scope="test:a", routes=ROUTES)  # type: ignore[method-assign]
    app.test_client().post("/charges")
    app.test_client().post("/charges")
    of_flask = warned(caplog)
    caplog.clear()
    wire = Django(routes=ROUTES)
    wire.send()
    wire.close()
    gate.close()

    assert of_flask == LOST
    assert warned(caplog) == []  # Every path goes to its one view.


@pytest.mark.fault("decorators-of-handlers-are-not-read")
@pytest.mark.parametrize("make", [fastapi_app, starlette_app], ids=["fastapi", "starlette"])
def test_a_decorator_at_the_handler_says_what_a_route_would(make: Any) -> None:
    """
    No path is written twice, so none can be mistyped.
    """
    client = TestClient(make())
    refused, passed = client.post("/api/orders/7"), client.post("/charges")
    key = {"Idempotency-Key": "k"}
    hooks = [client.post("/hooks", headers=key) for _ in range(2)]
    orders = [client.post("/api/orders/7", headers=key) for _ in range(2)]

    assert (refused.status_code, passed.status_code) == (400, 200)
    assert ["idempotency-replayed" in one.headers for one in hooks] == [False, False]
    assert ["idempotency-replayed" in one.headers for one in orders] == [False, True]


def test_a_decorator_works_in_flask(tmp_path: Any) -> None:
    """
    Put nearest to the function, below Flask's own.
    """
    app = Flask("shop")

    @app.post("/orders/<int:number>")
    @idempotent(require_key=True)
    def order(number: int) -> dict[str, int]:
        return {"order": number}

    gate = Gate("memory://", scope="test:a")
    app.wsgi_app = WsgiMiddleware(app.wsgi_app, gate=gate, scope="test:a")  # type: ignore[method-assign]

    assert app.test_client().post("/orders/7").status_code == 400
    gate.close()


def test_what_tells_nothing_is_not_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    """
    A bare application does not say what its routes are, so nothing can be said of ours.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """Nothing."""

    assert find_app_routes(app) is None
    assert find_app_routes(None) is None
    assert warned(caplog) == []
