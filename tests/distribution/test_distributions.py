"""What is published: complete, true about itself, and working where nothing else is."""

from __future__ import annotations

import email
import email.message
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from distribution_support import ROOT, Distributions
from readme_renderer.markdown import render

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]


def metadata(wheel: Path) -> email.message.Message:
    """What a wheel says about itself."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


def places(text: str) -> list[str]:
    """Where the links and pictures of a page lead; code is not looked at."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'\bsrc(?:set)?="([^"]+)"', prose)


def environment(folder: Path, wheel: Path) -> Path:
    """An environment with this wheel and nothing else, not even pip; its Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-compile"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return python


def test_twine_finds_nothing_to_complain_about(distributions: Distributions) -> None:
    """
    `twine check --strict`: what the index would refuse, or show as raw text.
    """
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, distributions[:2])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.count("PASSED")) == (0, 2), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("which", ["wheel", "wheel_of_sdist"])
def test_installed_alone_the_first_example_runs_twice(which: str, distributions: Distributions, tmp_path: Path) -> None:
    """
    From the wheel, and from the source archive by way of pip: no other package, and nothing of the clone.
    """
    python = environment(tmp_path / "environment", getattr(distributions, which))
    shown = metadata(distributions.wheel).get_payload()
    example = re.search(r"^```python\n(.*?)^```$", str(shown), re.MULTILINE | re.DOTALL)
    assert example is not None
    (tmp_path / "shop.py").write_text(example[1])
    command = [str(python), "-I", "-W", "error", "shop.py"]
    runs = [subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False) for _ in range(2)]
    listed = subprocess.run(
        [str(python), "-I", "-c", "import importlib.metadata as m; print(*[d.name for d in m.distributions()])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    version = subprocess.run(
        [str(python.with_name("onceward")), "--version"], capture_output=True, text=True, check=True
    )

    assert [(one.returncode, one.stderr) for one in runs] == [(0, ""), (0, "")]
    assert runs[0].stdout == runs[1].stdout != ""
    assert (tmp_path / "charges.txt").read_text() == "o-17 12.50\n"
    assert listed.stdout.split() == ["onceward"]
    assert version.stdout == f"onceward {PROJECT['version']}\n"


def test_the_wheel_has_the_package_and_nothing_else(distributions: Distributions) -> None:
    """
    Every file of src, by way of either archive; no test, no tool.
    """
    source = ROOT / "src"
    files = [one for one in (source / "onceward").rglob("*") if one.is_file() and "__pycache__" not in one.parts]
    wanted = sorted(one.relative_to(source).as_posix() for one in files)
    found = []
    for wheel in (distributions.wheel, distributions.wheel_of_sdist):
        with zipfile.ZipFile(wheel) as opened:
            found.append(sorted(one for one in opened.namelist() if ".dist-info/" not in one))

    assert found == [wanted, wanted]


def test_the_source_archive_can_be_worked_with(distributions: Distributions) -> None:
    """
    What the targets of the Makefile read is in it; what one machine made is not.
    """
    with tarfile.open(distributions.sdist) as opened:
        names = {one.partition("/")[2] for one in opened.getnames()}

    assert {
        "Makefile", "README.md", "LICENSE", "Dockerfile", "compose.yaml", "tools/make_environment.sh",
        "tools/pypi_readme.py", "requirements/dev.txt", "requirements/constraints.txt", "ops/compose/nginx.conf",
        "tests/conftest.py", "docs/index.md",
    } <= names  # fmt: skip
    assert [one for one in names if ".venv" in one or one.endswith((".db", ".pyc", "first-token"))] == []


class TestMetadata:
    """What the index shows beside the text."""

    def test_who_and_where(self, distributions: Distributions) -> None:
        """
        Authors, and links that are all made of one address.
        """
        told = metadata(distributions.wheel)
        links = dict(one.split(", ", 1) for one in told.get_all("Project-URL") or [])

        assert told["Author"] == "Onceward maintainers"
        assert {"Repository", "Documentation", "Changelog", "Issues"} <= links.keys()
        assert [one for one in links.values() if not one.startswith(REPOSITORY)] == []
        assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", ">=3.11")

    def test_classifiers_exist_and_name_every_python(self, distributions: Distributions) -> None:
        """
        The index refuses one that it does not know (the package trove-classifiers has its list).
        """
        from trove_classifiers import classifiers

        found = metadata(distributions.wheel).get_all("Classifier") or []

        assert [one for one in found if one not in classifiers] == []
        assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(found)
        assert "Typing :: Typed" in found

    def test_developers_requirements_are_not_published(self, distributions: Distributions) -> None:
        """
        No extra is for working on the package itself.
        """
        extras = set(metadata(distributions.wheel).get_all("Provides-Extra") or [])

        assert extras == set(PROJECT["optional-dependencies"])
        assert extras & {"dev", "test", "tests", "docs", "lint-dev"} == set()

    def test_every_extra_is_on_the_page_about_installing(self) -> None:
        """
        With what it is for.
        """
        page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
        rows = [line for line in page.splitlines() if line.startswith("| `")]

        assert [one for one in PROJECT["optional-dependencies"] if not any(f"`{one}`" in row for row in rows)] == []


class TestThePage:
    """README.md as the index shows it, where no file lies beside it."""

    @pytest.mark.fault("the-readme-has-dead-links-elsewhere")
    def test_every_link_leads_to_a_file_of_the_repository(self, distributions: Distributions) -> None:
        """
        Absolute, and there: the file that the rest of the address names exists.
        """
        page = str(metadata(distributions.wheel).get_payload())
        found = places(page)
        relative = [one for one in found if not re.match(r"https://|#", one)]
        paths = [path for one in found if (path := ours(one)) is not None]

        assert relative == []
        assert len(paths) >= 20
        assert [one for one in paths if not (ROOT / one).exists()] == []

    def test_the_index_shows_it_with_its_pictures_tables_and_code(self, distributions: Distributions) -> None:
        """
        Rendered and made harmless as it does: nothing of it is lost, and no marker of ours is shown.
        """
        shown = render(str(metadata(distributions.wheel).get_payload()))

        assert shown is not None
        assert shown.count("<img ") == 2
        assert shown.count("<table>") >= 3
        assert "<pre" in shown
        assert "begin --" not in shown

    def test_only_places_are_changed(self, distributions: Distributions) -> None:
        """
        Put back, it is README.md.
        """
        page = str(metadata(distributions.wheel).get_payload())
        back = re.sub(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/HEAD/", "", page)

        assert back.strip() == (ROOT / "README.md").read_text(encoding="utf-8").strip()

    def test_pictures_are_fetched_as_files_and_pages_as_pages(self) -> None:
        """
        A picture inside of a link, HTML, a heading, code: each as it must be.
        """
        with_absolute_links = runpy.run_path(str(ROOT / "tools" / "pypi_readme.py"))["with_absolute_links"]
        text = (
            "[![a](docs/a.png)](docs/a.md#b) [c](https://c.example/d) [e](#f) ![g](./g.svg)\n"
            '<img alt="h" src="h.png"> [i [j]](k.md)\n\n```text\n[l](m.md)\n```\n'
        )

        assert with_absolute_links(text, "https://r.example/") == (
            "[![a](https://r.example/raw/HEAD/docs/a.png)](https://r.example/blob/HEAD/docs/a.md#b) "
            "[c](https://c.example/d) [e](#f) ![g](https://r.example/raw/HEAD/g.svg)\n"
            '<img alt="h" src="https://r.example/raw/HEAD/h.png"> [i [j]](https://r.example/blob/HEAD/k.md)\n\n'
            "```text\n[l](m.md)\n```\n"
        )


def ours(address: str) -> str | None:
    """The path of a file of ours that an address names."""
    found = re.match(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/HEAD/([^#]*)", address)
    return found[1] if found else None
