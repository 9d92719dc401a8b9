"""
A response that is complete goes to the server in one piece, if the server offers that in the request's ASGI scope.

ASGI has two messages for it, which are two writes to the client, and two packets. Whoever sends one this way notes its
status in the scope, because no message tells it.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeAlias

PLACE = "onceward.send_whole"
_STATUS = "onceward.status"

SendWhole: TypeAlias = Callable[[int, list[tuple[bytes, bytes]], bytes], bool]
"""Sends status, headers and body; False: nothing was sent, and it has to go as ASGI has it."""


def try_to_send(
    scope: MutableMapping[str, Any], status: int, headers: list[tuple[bytes, bytes]], body: bytes | memoryview
) -> bool:
    """Send a response in one piece; False: nothing was sent."""
    whole: SendWhole | None = scope.get(PLACE)
    if whole is None or not whole(status, headers, bytes(body)):
        return False
    scope[_STATUS] = status
    return True


def status_sent(scope: MutableMapping[str, Any]) -> int:
    """The status of a response that went in one piece; 0: none did."""
    found: int = scope.get(_STATUS, 0)
    return found
