"""
Which HTTP library the client speaks with: httpx2 if it is there, else httpx.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from onceward._core.errors import ConfigurationError


def import_http_library() -> tuple[Any, Any]:
    """The library, and our transports for it."""
    for name in ("httpx2", "httpx"):
        if find_spec(name) is not None:
            return import_module(name), import_module(f"onceward.http.{name}")
    raise ConfigurationError("the client needs httpx2 or httpx: pip install 'onceward[httpx2]'")
