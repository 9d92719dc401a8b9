"""
Addresses of other hosts that a built page would load something from. Links that a reader may click are no such thing.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_LOADS = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "use": ("href", "xlink:href"),
    "image": ("href", "xlink:href"),
}
_LOADED_RELATIONS = {
    "stylesheet",
    "preconnect",
    "dns-prefetch",
    "preload",
    "modulepreload",
    "prefetch",
    "icon",
    "manifest",
}
_FETCHED_FOR = ("mermaid", "glightbox")
"""Where a page has these, the theme's script fetches a library from another host."""
_IN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        values = {name: value or "" for name, value in attrs}
        loaded = [values.get(name, "") for name in _LOADS.get(tag, ())]
        if tag == "link" and _LOADED_RELATIONS & set(values.get("rel", "").split()):
            loaded.append(values.get("href", ""))
        self.found += [one for one in loaded if re.match(r"(https?:)?//", one.strip())]
        self.found += _IN_STYLE.findall(values.get("style", ""))
        self.found += [f"what draws {one}" for one in _FETCHED_FOR if one in values.get("class", "").split()]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.found += _IN_STYLE.findall(data)


def loads_of_page(html: str) -> list[str]:
    """The outside addresses that a browser would ask when it shows this page."""
    page = _Page()
    page.feed(html)
    return page.found


def loads_of_style(css: str) -> list[str]:
    """The outside addresses that a style sheet loads from."""
    return _IN_STYLE.findall(css)


def outside_loads(site: Path) -> list[str]:
    """Every page and style sheet of a site that loads from another host, and what."""
    found = []
    for file in sorted(site.rglob("*")):
        if file.suffix == ".html":
            loads = loads_of_page(file.read_text(encoding="utf-8"))
        elif file.suffix == ".css":
            loads = loads_of_style(file.read_text(encoding="utf-8"))
        else:
            continue
        found += [f"{file.relative_to(site)}: {address}" for address in loads]
    return found
