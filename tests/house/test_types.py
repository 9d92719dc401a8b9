"""
What type checkers say, mypy --strict and pyright: of every example in README and docs, and of wrong calls.

A check that is silent proves nothing, so the wrong calls of `tests/typing/wrong` must be reported, line by line.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from checkers import CHECKERS, SECONDS_MAX, Complaint, on_pages, write_scripts
from doc_pages import PAGES, ROOT

from onceward.http import Profile
from onceward.http.server.profile_overrides import ProfileOverrides, RouteOverrides

TYPING = ROOT / "tests" / "typing"

# A checker reads everything that is imported. How long that takes is the machine's affair.
pytestmark = pytest.mark.timeout(SECONDS_MAX + 60)


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_every_example_type_checks(checker: str, tmp_path: Path) -> None:
    """
    Each python block of README and docs, with those that it continues; a complaint has the page's own line.
    """
    from_page = write_scripts(PAGES, tmp_path)

    assert on_pages(CHECKERS[checker](tmp_path), from_page) == []


FAULTS = pytest.mark.fault(
    "declared-functions-lose-their-parameters",
    "a-result-has-the-type-that-the-function-returned",
    "a-middleware-takes-anything",
)
"""For pyright alone, which is the quicker of the two in a fresh copy."""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=FAULTS)])
def test_right_calls_pass_and_wrong_ones_are_reported(checker: str, tmp_path: Path) -> None:
    """
    Every line that is marked as wrong is reported, and no other line of what users write is.
    """
    for file in (*TYPING.glob("*.py"), *TYPING.glob("wrong/*.py")):
        shutil.copyfile(file, tmp_path / f"typing_{file.name}")
    marked = {
        f"{file.name}:{number}"
        for file in tmp_path.glob("*.py")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if line.endswith(("# wrong", f"# wrong ({checker})"))
    }
    reported = CHECKERS[checker](tmp_path)

    assert sorted(f"{one.file}:{one.line}: {one.message}" for one in reported if place_of(one) not in marked) == []
    assert sorted(marked - {place_of(one) for one in reported}) == [], "these wrong calls pass"


def place_of(complaint: Complaint) -> str:
    return f"{complaint.file}:{complaint.line}"


def test_the_keywords_of_a_profile_are_its_fields() -> None:
    """
    What `Route`, `profile` and the middlewares take by name is typed as the profile has it.
    """
    own = get_type_hints(Profile)

    assert {field.name: own[field.name] for field in fields(Profile)} == get_type_hints(ProfileOverrides)
    assert set(get_type_hints(ProfileOverrides)) - {"methods"} == set(get_type_hints(RouteOverrides))


class TestTheChecksThemselves:
    """A broken example is noticed, at its place on the page."""

    PAGE = """# Planted

```python
value: int = 1
```

```python continued
value.nothing
```

```python
print(value)
```
"""

    @pytest.mark.slow
    @pytest.mark.parametrize("checker", CHECKERS)
    def test_a_broken_example_is_noticed_with_its_line_on_the_page(self, checker: str, tmp_path: Path) -> None:
        """
        What a block continues is known to it, and what another block defined is not.
        """
        page, folder = ROOT / "docs" / "planted.md", tmp_path / "scripts"
        folder.mkdir()
        from_page = write_scripts([page], folder, text_of=lambda _: self.PAGE)
        told = on_pages(CHECKERS[checker](folder), from_page)

        assert [re.match(r"[^:]+:\d+", line)[0] for line in told] == ["docs/planted.md:8", "docs/planted.md:12"]  # type: ignore[index]
