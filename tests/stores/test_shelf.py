"""The whole suite on the store of docs/how-to/write-a-store.md, as the page itself says that it is judged."""

from __future__ import annotations

import shelf
from shelf import KIND, path_of  # type: ignore[attr-defined]  # noqa: F401

exec(compile(shelf.TEST, str(shelf.PAGE), "exec"), globals())
