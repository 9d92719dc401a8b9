"""A request is retried as it was, and then with another body."""

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
    """Three requests under one key."""
    shop = Shop(folder)
    visitor = Visitor(adapter.wrapped(shop, Place(folder, url)))

    async def visit() -> list[dict[str, Any]]:
        return [await visitor.post("/charges", "order-1", {"amount": amount}) for amount in (5, 5, 500)]

    first, same, other = asyncio.run(visit())
    return {"effects": len(shop.charges), "first": first, "same": same, "other": other}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("http-retry")


def say(data: Data) -> str:
    """What the retry and the other request got."""
    replayed = "was replayed" if data["same"] == data["first"] else f"got {data['same']['status']}"
    other = data["other"]
    told = f"{other['status']}" + (", with the first one's response" if other == data["first"] else "")
    return f"{effects(data['effects'])}; the same request {replayed}; another body got {told}"


QUESTION = Question(
    name="http-retry",
    title="A request is sent again as it was, and then with another body.",
    how="Three POSTs under one key. Right: one effect, the same response, and a refusal (422) for the other body.",
    ask=ask,
    say=say,
    cell=lambda data: f"{data['same']['status']}, {data['other']['status']}",
    right=lambda data: data["effects"] == 1 and data["same"] == data["first"] and data["other"]["status"] == 422,
    kind=HTTP,
    order=50,
)
