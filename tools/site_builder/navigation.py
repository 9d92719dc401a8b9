"""
The navigation of the site, read from docs/index.md. Its second-level headings are the groups, in that order, and each
list item's first link is a page. A page with a folder of its own (`lint.md` and `lint/`, `decisions/index.md`) has the
pages of that folder below it, in the order and under the headings in which it links them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from site_builder.page_links import links_of, prose_lines

INDEX = "docs/index.md"
GLANCE = "Features"
"""The one heading of the index that is no group: what the product has, in prose with links."""

_ITEM = re.compile(r"- \[(?P<title>[^\]]+)\]\((?P<target>[^)#]+)\)")
_HEADING = re.compile(r"## (?P<title>.+)")


class Entry(NamedTuple):
    """A line of the navigation: a page, or a group of lines, or a page with lines below it."""

    title: str
    source: str | None
    """The page's file, from the project's root."""
    below: tuple[Entry, ...] = ()

    def pages(self) -> Iterator[tuple[str, str]]:
        """Title and file of each page here and below."""
        if self.source is not None:
            yield self.title, self.source
        for entry in self.below:
            yield from entry.pages()


def read_navigation(root: Path) -> list[Entry]:
    """The groups of the index, with everything below them."""
    groups: list[tuple[str, list[Entry]]] = []
    for _, line in prose_lines((root / INDEX).read_text(encoding="utf-8")):
        if heading := _HEADING.fullmatch(line):
            groups.append((heading["title"], []))
        elif groups and (item := _ITEM.match(line)) and groups[-1][0] != GLANCE:
            source = resolved(INDEX, item["target"])
            groups[-1][1].append(Entry(item["title"], source, tuple(_pages_below(root, source))))
    return [Entry(title, None, tuple(entries)) for title, entries in groups if title != GLANCE]


def resolved(page: str, target: str) -> str:
    """The file that a link of a page means, from the project's root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def title_of(text: str) -> str:
    """A page's title: its first heading, without marks."""
    for _, line in prose_lines(text):
        if line.startswith("# "):
            return line.removeprefix("# ").replace("`", "").strip()
    raise ValueError("a page without a title; begin it with a line `# Title`")


def _pages_below(root: Path, source: str) -> Iterator[Entry]:
    """The pages of the folder that belongs to this page, as it links them: in its order, under its headings."""
    folder = posixpath.dirname(source) if source.endswith("/index.md") else source.removesuffix(".md")
    if not (root / folder).is_dir():
        return
    heading, seen = "", {source}
    under: dict[str, list[Entry]] = {}
    text = (root / source).read_text(encoding="utf-8")
    for number, line in prose_lines(text):
        if found := _HEADING.fullmatch(line):
            heading = found["title"]
        for _, target in links_of(line, first=number):
            page = resolved(source, target.partition("#")[0])
            if page not in seen and posixpath.dirname(page) == folder and (root / page).is_file():
                seen.add(page)
                entry = Entry(title_of((root / page).read_text(encoding="utf-8")), page)
                under.setdefault(heading, []).append(entry)
    if len(under) == 1:
        yield from under.popitem()[1]
    else:
        yield from (Entry(title, None, tuple(entries)) for title, entries in under.items())
