"""
What the site generator reads, put together in one folder: the pages of docs/ and those of the root that the index
lists, the reference, a page for every source file that one of them links to, and the settings with the navigation.

Pages are written for a code host. Here their links are turned to where things are on the site, and the words after the
language of a fence (`python continued`), which are for the tests, are taken off.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from site_builder import reference
from site_builder.navigation import INDEX, Entry, read_navigation, resolved
from site_builder.page_links import is_outside, prose_lines, with_links

SETTINGS = Path(__file__).with_name("zensical.toml")
EXTRAS = tuple(Path(__file__).with_name(name) for name in ("site.css", "file_worker.js"))
BUILT = "site"
"""Where the generator puts the site: it must be below the folder of its settings."""
SOURCES = "source"
"""The folder of the site with the files that pages link to, one page each; not in the navigation nor in the search."""

_FENCE = re.compile(r"( *```+)(\w+) [\w -]+")
_LANGUAGES = {".py": "python", ".sql": "sql", ".toml": "toml", ".md": "markdown", ".yml": "yaml", ".json": "json"}


class Staging:
    """The folder that the generator reads."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._pages = folder / "pages"
        self._folder = folder
        self._navigation = read_navigation(root)
        listed = [source for group in self._navigation for _, source in group.pages()]
        self._wanted: dict[str, None] = dict.fromkeys((INDEX, *listed))

    def write(self) -> None:
        """Write everything; the generator puts the site beside the pages, into `BUILT`."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._pages.mkdir(parents=True)
        shutil.copytree(self._root / "docs" / "images", self._pages / "images")
        for extra in EXTRAS:
            shutil.copy(extra, self._pages / extra.name)
        for page in reference.pages():
            self._put(page.path, page.text)
        written: set[str] = set()
        while waiting := [source for source in self._wanted if source not in written]:
            for source in waiting:
                written.add(source)
                self._put(self.site_path(source), self._staged(source))
        settings = SETTINGS.read_text(encoding="utf-8")
        head = f"docs_dir = {_toml('pages')}\nsite_dir = {_toml(BUILT)}\nnav = {_toml(self.navigation())}\n"
        text = settings.replace("[project]\n", f"[project]\n{head}", 1)
        (self._folder / "zensical.toml").write_text(text, encoding="utf-8")

    def navigation(self) -> list[Any]:
        """The navigation as the generator wants it, with the reference of the packages in its group."""
        lines: list[Any] = [{"Home": "index.md"}]
        for group in self._navigation:
            below = [self._line(entry) for entry in group.below]
            if group.title == "Reference":
                below.insert(0, {"Python packages": _packages()})
            lines.append({group.title: below})
        return lines

    def site_path(self, source: str) -> str:
        """Where a file of the project is on the site, from its root."""
        if _is_page(source):
            return source.removeprefix("docs/") if source.startswith("docs/") else source.lower()
        if source.startswith("docs/"):
            return source.removeprefix("docs/")
        if (self._root / source).is_dir():
            return f"{SOURCES}/{source}/index.md"
        return f"{SOURCES}/{source}.md"

    def _line(self, entry: Entry) -> Any:
        below = [self._line(one) for one in entry.below]
        if entry.source is None:
            return {entry.title: below}
        path = self.site_path(entry.source)
        # A page with pages below it is the first of them; the theme shows it as the group's own.
        return {entry.title: [path, *below]} if below else {entry.title: path}

    def _staged(self, source: str) -> str:
        file = self._root / source
        if _is_page(source):
            return "\n".join(self._lines(source, file.read_text(encoding="utf-8"))) + "\n"
        hidden = "---\nsearch:\n  exclude: true\n---\n\n"
        if file.is_dir():
            names = sorted(one for one in file.iterdir() if _is_shown(one))
            for one in names:
                self._wanted.setdefault(f"{source}/{one.name}")
            items = [f"- [`{one.name}`]({one.name}{'/index' if one.is_dir() else ''}.md)" for one in names]
            return f"{hidden}# {source}\n\n" + "\n".join(items) + "\n"
        text = file.read_text(encoding="utf-8")
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`{3,}", text)), 3)
        return f"{hidden}# {source}\n\n{fence}{_LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"

    def _lines(self, source: str, text: str) -> Iterator[str]:
        """A page's lines, as the site needs them."""
        prose = {number for number, _ in prose_lines(text)}
        for number, line in enumerate(text.splitlines(), start=1):
            if number in prose:
                yield with_links(line, self._turned(source))
            elif fence := _FENCE.fullmatch(line):
                yield fence[1] + fence[2]
            else:
                yield line

    def _turned(self, source: str) -> Callable[[str], str]:
        """From a link of a page of the project to the same link on the site."""

        def turned(target: str) -> str:
            path, mark, anchor = target.partition("#")
            if is_outside(target) or not path:
                return target
            file = resolved(source, path)
            is_asset = file.startswith("docs/") and not file.endswith(".md")
            if not is_asset:
                self._wanted.setdefault(file)
            elif not file.startswith("docs/images/"):
                self._put_file(file)
            here = posixpath.dirname(self.site_path(source))
            return posixpath.relpath(self.site_path(file), here or ".") + mark + anchor

        return turned

    def _put(self, path: str, text: str) -> None:
        file = self._pages / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _put_file(self, source: str) -> None:
        file = self._pages / self.site_path(source)
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._root / source, file)


def _is_page(source: str) -> bool:
    """Whether a file is a page: Markdown in docs/ or at the project's root. Others are shown as source."""
    return source.endswith(".md") and (source.startswith("docs/") or "/" not in source)


def _packages() -> list[Any]:
    """The reference's part of the navigation."""
    groups: dict[str, list[Any]] = {}
    for group, modules in reference.PACKAGES.items():
        groups[group] = [{module: reference.path_of(module)} for module in modules]
    return [{group: below} for group, below in groups.items()]


def _is_shown(file: Path) -> bool:
    """Whether a file of a folder is one that people read."""
    return not file.name.startswith((".", "__")) and (file.is_dir() or file.suffix in _LANGUAGES)


def _toml(value: Any) -> str:
    """A value as TOML: text, lists, and tables in one line."""
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(name))} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)
