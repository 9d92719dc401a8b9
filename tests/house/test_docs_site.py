"""
The documentation as a site: its navigation, its links, its reference and its pictures. The site itself is built by
`make docs`; nothing here needs its environment.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doc_pages import PAGES, blocks, chains, scripts
from site_tools import ROOT, navigation, outside, page_links, reference, source_names, staging

GROUPS = (
    "Start", "Agents", "HTTP APIs", "Databases", "Retries", "Messages", "Service", "Operating", "Reference", "Why",
)  # fmt: skip
TITLE_MAX = 48
"""What fits beside a page."""
MARKED = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
INSIDE = re.compile(
    r"onceward\.(_core|runtime|cli|drill|dashboard\.pages|stores\.\w+|retry\.\w+|adapters\.\w+|testing\.store_suite\.\w+"
    r"|testing\.http_suite\.\w+|service\.(decisions|records|seal|sql\.\w+|sql_home|web))(\.|$)"
)
"""Modules with `__all__` whose names nobody outside of the project imports from there."""
IMPORTED_APART = {
    "onceward.cli",
    "onceward.runtime",
    "onceward.testing.once_scenes",
}
"""Examples import from these, which are modules or a program and no packages of names."""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as the generator reads them."""
    folder = tmp_path_factory.mktemp("site")
    staging.Staging(ROOT, folder).write()
    return folder / "pages"


@pytest.fixture(scope="module")
def reference_pages() -> dict[str, str]:
    """Module -> its page."""
    return {page.module: page.text for page in reference.pages()}


def entries(page: str) -> set[str]:
    """The names that a page of the reference describes, or leads on to."""
    own = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    return {*own, *re.findall(r"^\| \[`(\w+)`\]\(", page, re.MULTILINE)}


def signature(page: str, name: str) -> list[str]:
    """The arguments of a name as its page shows them, in order."""
    shown = re.search(rf"^## {name}\n\n```python\n(.+?)\n```", page, re.MULTILINE | re.DOTALL)
    assert shown is not None, name
    text = max(shown[1].split("\n\n"), key=len)  # Of overloads the longest: it has every argument.
    if re.fullmatch(r"class \w+", text):
        return []
    function = ast.parse(re.sub(r"^class ", "def ", text) + ": ...").body[0]
    assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    given = function.args
    every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    return [one.arg for one in every if one is not None]


def imported_from(page: Path) -> Iterator[tuple[str, set[str]]]:
    """What the examples of a page import from our modules."""
    for linked in chains(blocks(page.read_text(encoding="utf-8"))):
        for language, script in scripts(linked) if linked[0].is_run else ():
            for node in ast.walk(ast.parse(script)) if language == "python" else ():
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "onceward":
                    yield node.module or "", {name.name for name in node.names} - {"*"}


class TestTheNavigation:
    """docs/index.md is the one list of the pages; the site's navigation is read from it."""

    @pytest.mark.fault("a-page-is-not-in-the-navigation")
    def test_every_page_is_in_it_once(self) -> None:
        """
        Nobody has to know where a page is to find it, and none is found in two places.
        """
        listed = Counter(source for group in navigation.read_navigation(ROOT) for _, source in group.pages())
        written = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")} - {navigation.INDEX}

        assert [source for source, times in listed.items() if times > 1] == []
        assert sorted(written - set(listed)) == []
        assert sorted(source for source in listed if not (ROOT / source).is_file()) == []

    def test_it_is_grouped_by_task(self) -> None:
        """
        In this order, on the site and on a code host.
        """
        assert tuple(group.title for group in navigation.read_navigation(ROOT)) == GROUPS

    def test_its_titles_are_plain(self) -> None:
        """
        Short, without marks, and different from each other where they stand together.
        """
        for group in navigation.read_navigation(ROOT):
            titles = [entry.title for entry in group.below]

            assert [title for title in titles if len(title) > TITLE_MAX or re.search(r"[`*_<>]|\.$", title)] == []
            assert sorted(set(titles)) == sorted(titles)

    def test_the_reference_of_the_packages_is_in_it_once(self, tmp_path: Path, reference_pages: dict[str, str]) -> None:
        """
        The pages that are made from the code stand in the group for looking things up.
        """
        lines = staging.Staging(ROOT, tmp_path).navigation()
        [group] = [line["Reference"] for line in lines if "Reference" in line]
        packages = [page for below in group[0]["Python packages"] for page in next(iter(below.values()))]
        paths = [path for page in packages for path in page.values()]

        assert paths == [reference.path_of(module) for module in reference_pages]


class TestLinks:
    """No link is dead, on a code host or on the site."""

    @pytest.mark.fault("a-dead-anchor")
    def test_every_link_leads_to_a_file_and_every_anchor_to_a_heading(self) -> None:
        """
        In the pages and at the root of the project.
        """
        assert page_links.dead_links(ROOT, MARKED) == []

    def test_so_it_is_on_the_site(self, staged: Path) -> None:
        """
        What the generator reads: links turned to the site's places, the reference, and sources that pages link to.
        """
        pages = sorted(staged.rglob("*.md"))

        assert page_links.dead_links(staged, pages) == []
        assert len(pages) > len(MARKED)

    def test_every_picture_is_used_and_has_words(self) -> None:
        """
        What is drawn is shown somewhere, with a text that says the same.
        """
        shown = [
            (alt, (page.parent / target).resolve().name)
            for page in MARKED
            for alt, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
            if not page_links.is_outside(target)
        ]
        drawn = {file.name for file in (ROOT / "docs" / "images").iterdir() if file.is_file()}

        assert [name for alt, name in shown if len(alt) < 20] == []
        assert drawn - {name for _, name in shown} == set()


class TestTheReference:
    """Made from the source, without importing anything."""

    @pytest.mark.fault("a-public-name-without-a-reference")
    def test_every_public_name_is_in_it(self, reference_pages: dict[str, str]) -> None:
        """
        A page for each package, and on it all of its `__all__`.
        """
        missing = {
            module: sorted(set(names) - entries(page))
            for module, page in reference_pages.items()
            if (names := source_names.declared_names(module)) is not None
        }

        assert {module: names for module, names in missing.items() if names} == {}

    def test_every_name_has_words(self) -> None:
        """
        A signature alone does not say what a thing is for.
        """
        bare = [
            f"{module}.{name}"
            for packages in reference.PACKAGES.values()
            for module in packages
            for name in source_names.declared_names(module) or ()
            if (found := source_names.find(module, name)) is not None and not found.words
        ]

        assert bare == []

    def test_no_public_package_is_left_out(self, reference_pages: dict[str, str]) -> None:
        """
        A new package with `__all__` is in the reference, or is known to be inside the project only.
        """
        offering = [module for module in source_names.modules() if source_names.declared_names(module) is not None]

        assert [module for module in offering if module not in reference_pages and not INSIDE.match(module)] == []

    def test_what_the_pages_import_is_in_it(self, reference_pages: dict[str, str]) -> None:
        """
        Whatever an example uses can be looked up.
        """
        missing = set()
        for page in PAGES:
            for module, names in imported_from(page):
                unknown = names - entries(reference_pages.get(module, ""))
                if unknown and module not in IMPORTED_APART:
                    missing.add((module, *sorted(unknown)))

        assert {one for one in missing if not _are_modules(one)} == set()

    @pytest.mark.parametrize("module", [one for one in reference.PACKAGES["Core"] if one != "onceward"])
    def test_its_signatures_are_those_of_the_code(self, module: str, reference_pages: dict[str, str]) -> None:
        """
        The arguments on the page are the ones that Python itself sees, in their order.
        """
        imported = importlib.import_module(module)
        own = re.findall(r"^## (\w+)$", reference_pages[module], re.MULTILINE)
        wrong = {}
        for name in own:
            thing: Any = getattr(imported, name)
            if f"```python\n{name} = " in reference_pages[module]:
                continue  # Another name for something.
            if not inspect.isroutine(thing) and not _takes_arguments(thing):
                continue
            seen = list(inspect.signature(thing).parameters)
            shown = signature(reference_pages[module], name)
            if seen != shown and not _is_made_elsewhere(thing):
                wrong[name] = (seen, shown)

        assert own
        assert wrong == {}


def _are_modules(imported: tuple[Any, ...]) -> bool:
    module, *names = imported
    return all(f"{module}.{name}" in source_names.modules() for name in names)


def _takes_arguments(thing: Any) -> bool:
    """Whether a class says itself what it is made of: not an enum, a protocol or a typed dictionary."""
    if not inspect.isclass(thing) or issubclass(thing, BaseException) or hasattr(thing, "__members__"):
        return False
    return not getattr(thing, "_is_protocol", False) and not hasattr(thing, "__required_keys__")


def _is_made_elsewhere(thing: Any) -> bool:
    """Whether a class has its arguments from a base of another library."""
    return inspect.isclass(thing) and not thing.__init__.__module__.startswith("onceward")


class TestPictures:
    """Drawn from what is so, and still so."""

    SIMULATED = ("jitter", "collapse", "storm")
    """Drawn from simulations, which take seconds each."""

    @pytest.mark.slow
    @pytest.mark.fault("a-picture-of-other-rules")
    def test_they_are_what_the_tool_draws(self) -> None:
        """
        The rules are asked, processes are killed and requests sent anew: every picture is the same again.
        """
        assert self.checked("--but", *self.SIMULATED) == (0, "", "")

    @pytest.mark.slow
    @pytest.mark.dose(1)
    @pytest.mark.parametrize("name", SIMULATED)
    def test_a_simulation_is_what_the_tool_draws(self, name: str) -> None:
        """
        The same numbers, and so the same curves.
        """
        assert self.checked(name) == (0, "", "")

    def checked(self, *names: str) -> tuple[int, str, str]:
        """What the tool says of these pictures."""
        command = [sys.executable, str(ROOT / "tools" / "pictures.py"), "--check", *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
        return done.returncode, done.stdout, done.stderr

    def test_they_are_for_light_and_dark_and_speak(self) -> None:
        """
        Each has colours for a dark theme, loads nothing, and names itself to those who do not see it.
        """
        pictures = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "docs" / "images").glob("*.svg")}

        assert len(pictures) >= 8
        for name, text in pictures.items():
            assert "@media (prefers-color-scheme: dark)" in text, name
            assert re.search(r"<title[ >]|aria-label=\"[^\"]{5,}", text), name
            assert outside.loads_of_page(text) == [], name

    def test_the_words_beside_the_failover_are_those_of_its_data(self) -> None:
        """
        Whoever renews the data is told to renew the sentence.
        """
        kept = json.loads((ROOT / "docs" / "images" / "data" / "failover.json").read_text(encoding="utf-8"))["runs"]
        page = (ROOT / "docs" / "how-to" / "replicas.md").read_text(encoding="utf-8")
        [words] = re.findall(r"!\[([^\]]*)\]\(../images/failover.svg\)", page)
        copied = next(run for name, run in kept.items() if name.startswith("synchronous"))
        control = next(run for name, run in kept.items() if name.startswith("asynchronous"))

        assert (copied["lost"], copied["doubled"], copied["changed"]) == (0, 0, 0)
        assert f"Of {copied['acknowledged']:,} acknowledged writes none is lost or doubled" in words
        assert f"with an asynchronous standby {control['lost']:,} are lost" in words


class TestTheChecksThemselves:
    """Each check can fail."""

    def test_dead_links_and_anchors_are_noticed(self, tmp_path: Path) -> None:
        """
        Also in a picture; not in code, and not those to other hosts.
        """
        (tmp_path / "there.md").write_text("# There\n\n## What is `left`?\n")
        page = tmp_path / "page.md"
        page.write_text(
            "[a](there.md#what-is-left) [b](there.md#gone) ![c](gone.svg) [d](https://example.com/x)\n"
            "`[e](gone.md)` [f](#page) [g](../outside.md)\n\n```text\n[h](gone.md)\n```\n\n# Page\n"
        )

        assert [line.partition(": ")[2] for line in page_links.dead_links(tmp_path, [page])] == [
            "there.md#gone: no such heading",
            "gone.svg: no such file",
            "../outside.md: no such file",
        ]

    def test_the_index_is_read_as_written(self, tmp_path: Path) -> None:
        """
        The first link of an item is its page; a page with a folder has the folder's pages below it, under its headings.
        """
        docs = tmp_path / "docs"
        (docs / "rules").mkdir(parents=True)
        (docs / "index.md").write_text(
            "# Docs\n\n## Features\n\n- [No page](x.md)\n\n## Start\n\n- [First](first.md), [not](second.md)\n"
            "- [Rules](rules.md): all\n"
        )
        (docs / "rules.md").write_text(
            "## A\n\n[one](rules/one.md)\n\n## B\n\n[two](rules/two.md) [one](rules/one.md)\n"
        )
        (docs / "rules" / "one.md").write_text("# One `here`\n")
        (docs / "rules" / "two.md").write_text("# Two\n")
        [start] = navigation.read_navigation(tmp_path)

        assert [entry.title for entry in start.below] == ["First", "Rules"]
        assert [(title, source) for title, source in start.below[1].pages()] == [
            ("Rules", "docs/rules.md"),
            ("One here", "docs/rules/one.md"),
            ("Two", "docs/rules/two.md"),
        ]
        assert [group.title for group in start.below[1].below] == ["A", "B"]

    @pytest.mark.parametrize(
        "html",
        [
            '<script src="https://cdn.example.com/x.js"></script>',
            '<link rel="stylesheet" href="//fonts.example.com/css">',
            '<link rel="preconnect" href="https://fonts.example.com">',
            "<style>@import 'https://example.com/x.css';</style>",
            '<p style="background: url(https://example.com/x.png)">',
            '<img src="https://example.com/x.png">',
            '<pre class="mermaid"><code>graph</code></pre>',
        ],
    )
    def test_what_is_loaded_from_another_host_is_noticed(self, html: str) -> None:
        """
        Also by a script of the theme, which fetches what draws diagrams of that kind.
        """
        assert outside.loads_of_page(html) != []

    def test_a_link_to_another_host_is_nothing_loaded(self) -> None:
        """
        Readers may click.
        """
        page = '<a href="https://example.com/">x</a><link rel="next" href="https://example.com/"><img src="x.png">'

        assert outside.loads_of_page(page) == []

    def test_fences_lose_the_words_for_the_tests(self, staged: Path) -> None:
        """
        The site's generator would not take `python continued` for a fence; examples in Markdown stay whole.
        """
        words = [
            line
            for page in staged.glob("**/*.md")
            for line in page.read_text(encoding="utf-8").splitlines()
            if re.match(r" *```(python|console) \w", line) and page.relative_to(staged).parts[0] != staging.SOURCES
        ]

        assert words == []
