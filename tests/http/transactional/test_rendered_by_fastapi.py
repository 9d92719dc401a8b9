"""A transactional route in FastAPI settles with what FastAPI makes of the handler's return value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from onceward import AsyncGate, ConfigurationError
from onceward.http import Route
from onceward.http.asgi import IdempotencyMiddleware, rendered


class Order(BaseModel):
    """What is shown of an order."""

    id: int
    item: str


class Shop:
    """The application, and its database."""

    def __init__(self, folder: Path) -> None:
        url = f"sqlite:///{folder / 'orders.db'}"
        self.engine: Engine = create_engine(url)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, secret TEXT)"))
        self.app = FastAPI()
        self.app.add_middleware(
            IdempotencyMiddleware,
            gate=AsyncGate(url, scope="test:shop"),
            scope="test:shop",
            routes=[Route("/orders", transactional=True), Route("/early", transactional=True)],
        )
        self._routes()
        self.client = TestClient(self.app, raise_server_exceptions=False)

    def _routes(self) -> None:
        def settling(request: Request) -> Iterator[Session]:
            with Session(self.engine) as session, session.begin():
                yield session
                request.state.operation.settle_inside(session, rendered(request))

        def early(request: Request) -> Iterator[Session]:
            with Session(self.engine) as session, session.begin():
                request.state.operation.settle_inside(session, rendered(request))
                yield session

        @self.app.post("/orders", status_code=201, response_model=Order)
        def place(order: dict[str, str], response: Response, session: Session = Depends(settling)) -> Any:  # noqa: B008
            session.execute(text("INSERT INTO orders (item, secret) VALUES (:item, 's')"), order)
            number = session.execute(text("SELECT max(id) FROM orders")).scalar()
            if order["item"] == "none":
                raise HTTPException(422, "no such item")
            response.headers["X-Shop"] = "open"
            return {"id": number, "item": order["item"], "secret": "not shown"}

        @self.app.post("/early")
        def too_early(session: Session = Depends(early)) -> None:  # noqa: B008
            session.execute(text("INSERT INTO orders (item) VALUES ('early')"))

    def send(self, path: str = "/orders", item: str = "tea", key: str = "k") -> Any:
        """An order under a key."""
        return self.client.post(path, json={"item": item}, headers={"Idempotency-Key": key})

    def rows(self) -> int:
        """How many orders there are."""
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM orders")).scalar() or 0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop."""
    shop = Shop(tmp_path)
    yield shop
    shop.engine.dispose()


@pytest.mark.fault("the-handlers-own-answer-is-not-settled-with")
def test_return_value_status_code_and_response_model_are_what_is_settled_and_sent(shop: Shop) -> None:
    """
    The first caller gets FastAPI's own answer, every replay the same status and bytes; row and record are one commit.
    """
    first, again = shop.send(), shop.send()

    assert (first.status_code, first.json()) == (201, {"id": 1, "item": "tea"})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert (first.headers["x-shop"], first.headers.get("idempotency-replayed")) == ("open", None)
    assert again.headers["idempotency-replayed"] == "true"
    assert shop.rows() == 1


def test_a_refusal_that_is_raised_rolls_back_and_frees_the_key(shop: Shop) -> None:
    """
    FastAPI raises it in the dependency, which rolls back and settles nothing.
    """
    first, again = shop.send(item="none"), shop.send(item="none")

    assert [one.status_code for one in (first, again)] == [422, 422]
    assert "idempotency-replayed" not in again.headers
    assert shop.rows() == 0


def test_an_answer_that_is_not_there_yet_cannot_be_settled_with(shop: Shop) -> None:
    """
    Before the handler has returned there is none: refused, and nothing is written.
    """

    assert shop.send("/early").status_code == 500
    assert shop.rows() == 0
    with pytest.raises(ConfigurationError, match="has no operation"):
        rendered({"type": "http"})
