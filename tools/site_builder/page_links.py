"""
Links and anchors of Markdown pages: what points where, and what is dead.

Anchors are made of headings as code hosts make them; the site is told to make the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

_FENCE = re.compile(r" *(```+|~~~+)")
_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^()\s]+(?:\([^()\s]*\)[^()\s]*)?)(?P<tail>(?:\s+\"[^\"]*\")?\))")
_HEADING = re.compile(r"#{1,6} +(?P<title>.+?)(?: +#+)? *")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are in no fenced block, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            yield number, line


def links_of(text: str, *, first: int = 1) -> Iterator[tuple[int, str]]:
    """The target of every link and picture in prose, with its line. What stands in backticks is no link."""
    for number, line in prose_lines(text):
        spans = [span.span() for span in _SPAN.finditer(line)]
        for link in _LINK.finditer(line):
            if not any(start <= link.start() < end for start, end in spans):
                yield number + first - 1, link["target"]


def with_links(line: str, change: Callable[[str], str]) -> str:
    """A line of prose with every target changed."""
    spans = [span.span() for span in _SPAN.finditer(line)]

    def changed(link: re.Match[str]) -> str:
        if any(start <= link.start() < end for start, end in spans):
            return link.group()
        return link["head"] + change(link["target"]) + link["tail"]

    return _LINK.sub(changed, line)


def is_outside(target: str) -> bool:
    """Whether a link leads to another host, or to mail."""
    return bool(_OUTSIDE.match(target)) or target.startswith("//")


def slug(heading: str) -> str:
    """The anchor of a heading: lower case, no punctuation, hyphens for spaces."""
    bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", bare.lower()).strip().replace(" ", "-")


def anchors_of(text: str) -> set[str]:
    """Every anchor of a page. A heading that is there twice counts once: nobody links to the second."""
    headings = (_HEADING.fullmatch(line) for _, line in prose_lines(text))
    return {slug(heading["title"]) for heading in headings if heading}


def dead_links(root: Path, pages: list[Path]) -> list[str]:
    """The links of these pages that lead to no file of the project, or to no heading of a page."""
    anchors: dict[Path, set[str]] = {}
    dead = []
    for page in pages:
        for number, target in links_of(page.read_text(encoding="utf-8")):
            if is_outside(target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page.resolve()
            if not file.exists() or not file.is_relative_to(root.resolve()):
                dead.append(f"{page.relative_to(root)}:{number}: {target}: no such file")
            elif anchor and file.suffix == ".md":
                if file not in anchors:
                    anchors[file] = anchors_of(file.read_text(encoding="utf-8"))
                if anchor not in anchors[file]:
                    dead.append(f"{page.relative_to(root)}:{number}: {target}: no such heading")
    return dead
