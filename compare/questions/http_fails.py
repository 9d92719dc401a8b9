"""A handler responds 500 after its effect."""

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
    """Three requests under one key to a handler that charges and then fails."""
    shop = Shop(folder)
    visitor = Visitor(adapter.wrapped(shop, Place(folder, url)))

    async def visit() -> list[dict[str, Any]]:
        return [await visitor.post("/fails", "order-1", {"amount": 5}) for _ in range(3)]

    seen = asyncio.run(visit())
    return {"effects": len(shop.charges), "statuses": [one["status"] for one in seen]}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("http-fails")


QUESTION = Question(
    name="http-fails",
    title="A handler charges, and then responds 500. The client sends it three times.",
    how="One effect is right: a 500 does not say that nothing happened.",
    ask=ask,
    say=lambda data: f"{effects(data['effects'])}; responses: {', '.join(map(str, data['statuses']))}",
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    kind=HTTP,
    order=52,
)
