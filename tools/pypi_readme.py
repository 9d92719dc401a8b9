"""
The README as PyPI shows it, where no file lies beside it: its links and pictures lead into the repository.

Hatch asks for it when it builds (`[tool.hatch.metadata.hooks.custom]` in pyproject.toml). Where the repository is,
stands under `[project.urls]`, and nowhere else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!\[[^\[\]]*)?\]\((?P<place>[^)\s]+)\)")
"""The end of a link of Markdown, or a whole picture."""
SOURCE = re.compile(r'(?P<before><(?:img|source)\b[^>]*?\bsrc(?:set)?=")(?P<place>[^"]+)')
"""A picture of HTML."""
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|/", re.IGNORECASE)
"""What a place begins with that is not a file of ours: a scheme, a heading of the same page, a path of a host."""


def with_absolute_links(text: str, repository: str) -> str:
    """The text, with each relative place replaced by its address in the repository."""

    def absolute(place: str, kind: str) -> str:
        return place if ELSEWHERE.match(place) else f"{repository.rstrip('/')}/{kind}/HEAD/{place.removeprefix('./')}"

    def link(found: re.Match[str]) -> str:
        return f"{found['picture'] or ''}]({absolute(found['place'], 'raw' if found['picture'] else 'blob')})"

    def source(found: re.Match[str]) -> str:
        return found["before"] + absolute(found["place"], "raw")

    # Code is shown as it is.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else SOURCE.sub(source, LINK.sub(link, part)) for part in parts)


class CustomMetadataHook(MetadataHookInterface):
    """Sets `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """As hatch asks for it: change the metadata in place."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = with_absolute_links(text, metadata["urls"]["Repository"])
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
