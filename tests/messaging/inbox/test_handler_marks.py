"""A row of a database names a handler: what it names is read before it is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onceward.errors import ConfigurationError
from onceward.messaging.inbox.handler_marks import is_marked
from onceward.messaging.inbox.handlers import import_handler

TRACE = "import pathlib\n(pathlib.Path(__file__).parent / 'ran').touch()\n"
FN = "def paid(event): ...\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package from which handlers can be imported; each file of it tells when it runs."""
    folder = tmp_path / "mark_shop"
    folder.mkdir()
    (folder / "__init__.py").write_text(TRACE.replace("'ran'", "'package ran'"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [one for one in sys.modules if one.partition(".")[0] == "mark_shop"]:
        del sys.modules[name]


MARKED = {
    "the usual": f"from onceward.messaging.inbox import handler\n@handler(guarantee='repeatable')\n{FN}",
    "another name": f"from onceward.messaging.inbox import handler as hook\n@hook(guarantee='repeatable')\n{FN}",
    "by the module": f"from onceward.messaging import inbox\n@inbox.handler(guarantee='repeatable')\n{FN}",
    "in full": f"import onceward.messaging.inbox\n@onceward.messaging.inbox.handler(guarantee='repeatable')\n{FN}",
    "as an assignment": "from onceward.messaging.inbox import handler\n"
    "def one(event): ...\npaid = handler(guarantee='repeatable')(one)\n",
    "from a neighbour": "from .other import paid\n",
    "from far away": "from mark_shop.other import paid as paid\n",
}


@pytest.mark.parametrize("how", MARKED)
def test_a_handler_is_found_however_it_is_marked(shop: Path, how: str) -> None:
    """
    By reading alone, and then by importing it.
    """
    (shop / "other.py").write_text(MARKED["the usual"])
    (shop / "hooks.py").write_text(MARKED[how])

    assert is_marked("mark_shop.hooks", "paid")
    assert not (shop / "package ran").exists()
    assert import_handler("mark_shop.hooks:paid").guarantee == "repeatable"


@pytest.mark.fault("a-row-runs-any-module")
@pytest.mark.parametrize(
    "text",
    [
        FN,
        f"def handler(**_): return lambda fn: fn\n@handler(guarantee='repeatable')\n{FN}",
        f"from elsewhere import handler\n@handler()\n{FN}",
        f"from onceward.messaging.inbox import handler\n{FN}@handler(guarantee='repeatable')\ndef other(event): ...\n",
        "from .hooks import paid\n",
        "from os import system as paid\n",
        "def paid(:\n",
    ],
)
def test_a_module_without_the_mark_is_not_even_run(shop: Path, text: str) -> None:
    """
    Neither it nor the package that it is in.
    """
    (shop / "hooks.py").write_text(TRACE + text)
    with pytest.raises(ConfigurationError, match="not marked as a handler"):
        import_handler("mark_shop.hooks:paid")

    assert [one.name for one in shop.iterdir() if "ran" in one.name] == []


def test_what_python_comes_with_is_no_handler() -> None:
    """
    Modules with a source, without one, and one that opens a browser when it is imported.
    """
    sys.modules.pop("antigravity", None)
    for path in ("antigravity:fly", "this:s", "subprocess:run", "_ctypes:dlopen"):
        with pytest.raises(ConfigurationError):
            import_handler(path)
    assert "antigravity" not in sys.modules


def test_a_module_that_is_not_there_is_named(shop: Path) -> None:
    """
    And what to do about it.
    """
    for path, missing in (("no_such:paid", "no_such"), ("mark_shop.nothing:paid", "mark_shop.nothing")):
        with pytest.raises(ConfigurationError, match=f"no module '{missing}'.*--hooks-path"):
            import_handler(path)
