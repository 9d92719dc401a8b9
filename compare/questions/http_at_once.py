"""The same request arrives several times at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from compare.peers import HTTP
from compare.place import Place
from compare.questions import Data, Question, effects
from compare.shop import Shop, Visitor
from compare.stage import Stage

REQUESTS = 6


def inside(adapter: Any, folder: Path, url: str) -> Data:
    """Six at once, to a handler that takes a while; then one more."""
    shop = Shop(folder)
    visitor = Visitor(adapter.wrapped(shop, Place(folder, url)))

    async def visit() -> Any:
        many = await asyncio.gather(*(visitor.post("/slow", "order-1", {"amount": 5}) for _ in range(REQUESTS)))
        return many, await visitor.post("/slow", "order-1", {"amount": 5})

    many, later = asyncio.run(visit())
    statuses = Counter(str(one["status"]) for one in many)
    return {"effects": len(shop.charges), "statuses": dict(statuses), "later": later["status"]}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("http-at-once")


def say(data: Data) -> str:
    """Effects and statuses."""
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(data["statuses"].items()))
    return f"{effects(data['effects'])}; at once: {statuses}; afterwards: {data['later']}"


def better(ours: Data, theirs: Data) -> str | None:
    """Everybody got the response, without being told so."""
    if theirs["effects"] == 1 and theirs["statuses"].get("201", 0) > ours["statuses"].get("201", 0):
        return ""
    return None


QUESTION = Question(
    name="http-at-once",
    title="The same request arrives six times at once, and once more afterwards.",
    how="One effect is right; those that come meanwhile may wait or be told to come back (409).",
    ask=ask,
    say=say,
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1 and data["later"] == 201,
    better=better,
    best=lambda ours: "Lets requests that come meanwhile wait by default; we respond 409 unless told to wait",
    kind=HTTP,
    order=51,
)
