"""Two tenants choose the same key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from compare.peers import HTTP
from compare.place import Place
from compare.questions import Data, Question, effects
from compare.shop import Shop, Visitor
from compare.stage import Stage


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """The same request and key, with two credentials."""
    shop = Shop(folder)
    visitor = Visitor(adapter.wrapped(shop, Place(folder, url)))

    async def visit() -> list[dict[str, Any]]:
        return [await visitor.post("/charges", "order-1", {"amount": 5}, tenant=one) for one in ("acme", "globex")]

    first, second = asyncio.run(visit())
    return {"effects": len(shop.charges), "first": first, "second": second}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("http-tenants")


def say(data: Data) -> str:
    """Whose response the second one got."""
    if data["second"] == data["first"]:
        return f"{effects(data['effects'])}; the second tenant got the first one's response"
    return f"{effects(data['effects'])}; the second tenant got {data['second']['status']}"


QUESTION = Question(
    name="http-tenants",
    title="Two tenants choose the same key.",
    how=(
        "The same request with two credentials; where a middleware can be told whose keys they are, it is told. "
        "Two effects are right."
    ),
    ask=ask,
    say=say,
    cell=lambda data: "the other's response" if data["second"] == data["first"] else effects(data["effects"]),
    right=lambda data: data["effects"] == 2 and data["second"] != data["first"],
    kind=HTTP,
    order=53,
)
