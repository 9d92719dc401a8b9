"""
Style and script: the files in `static`, under names that change with them.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {
    "api.js": "text/javascript; charset=utf-8",
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
}
_FILES: Final = {name: files("onceward.dashboard").joinpath("static", name).read_bytes() for name in _TYPES}
VERSION: Final = sha256(b"".join(_FILES.values())).hexdigest()[:12]
"""Changes with any of the files: a browser keeps what was asked for under it."""


async def serve_asset(request: Request) -> Response:
    """One of the files."""
    name = request.path_params["name"]
    if name not in _FILES:
        return Response(status_code=404)
    kept = "public, max-age=31536000, immutable" if request.query_params.get("v") == VERSION else "no-cache"
    headers = {"cache-control": kept, "content-type": _TYPES[name], "x-content-type-options": "nosniff"}
    return Response(_FILES[name], headers=headers)
