"""A response of 2 MiB."""

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
    """Twice."""
    shop = Shop(folder)
    visitor = Visitor(adapter.wrapped(shop, Place(folder, url)))

    async def visit() -> list[dict[str, Any]]:
        return [await visitor.post("/large", "order-1", {"amount": 5}) for _ in range(2)]

    first, second = asyncio.run(visit())
    return {"effects": len(shop.charges), "first": first, "second": second}


def ask(stage: Stage) -> Data:
    """In the peer's interpreter."""
    return stage.inside("http-large")


def say(data: Data) -> str:
    """Whether it ran again, or was replayed."""
    second = (
        "the response was replayed" if data["second"] == data["first"] else f"the retry got {data['second']['status']}"
    )
    return f"{effects(data['effects'])}; {second}"


def better(ours: Data, theirs: Data) -> str | None:
    """It replays what we do not keep."""
    if theirs["effects"] == 1 and theirs["second"] == theirs["first"] and ours["second"] != ours["first"]:
        return ""
    return None


QUESTION = Question(
    name="http-large",
    title="The response is 2 MiB, and the client asks twice.",
    how="One effect is right; a replay is best.",
    ask=ask,
    say=say,
    cell=lambda data: effects(data["effects"]),
    right=lambda data: data["effects"] == 1,
    better=better,
    best=lambda ours: "Replays a response of 2 MiB with its defaults; we store up to 1 MiB unless told otherwise",
    kind=HTTP,
    order=54,
)
