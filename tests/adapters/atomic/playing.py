"""Scenarios, played at desks of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from desks import Desk, Kind, straight
from django_desk import DjangoDesk

Scenario = Callable[[Desk], Coroutine[Any, Any, None]]


def play(kind: Kind, folder: Path, scenario: Scenario) -> None:
    """Run a scenario at a desk of this kind."""

    async def whole() -> None:
        desk = (DjangoDesk if kind.target == "django" else Desk)(kind, folder)
        try:
            await scenario(desk)
        finally:
            await desk.close()

    if kind.awaits:
        asyncio.run(whole())
    else:
        straight(whole())
