"""The file that says what a server's tools are."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceward.agents.mcp_proxy.tools_file import read_tools_file
from onceward.errors import ConfigurationError

GOOD = """
[tools.create_refund]
kind = "blind"
key = "refund:{order_id}"
check = "list_refunds"
lease = 120
errors = "doubt"

[tools.search]
kind = "read-only"

[others]
kind = "repeatable"
result_bytes_max = 16_000_000
"""


def test_a_file_says_what_tools_are(tmp_path: Path) -> None:
    """
    Kind, key, check, options; what the others are; and whose errors leave doubt.
    """
    (tmp_path / "tools.toml").write_text(GOOD)
    found = read_tools_file(str(tmp_path / "tools.toml"))
    refund = found.tools["create_refund"]

    assert (refund.kind, refund.key, refund.check) == ("blind", "refund:{order_id}", "list_refunds")
    assert dict(refund.options) == {"lease": 120}
    assert not found.tools["search"].gated
    assert (found.others.kind, dict(found.others.options)) == ("repeatable", {"result_bytes_max": 16_000_000})
    assert [found.errors_leave_doubt(name) for name in ("create_refund", "search", "x")] == [True, False, False]


def test_the_same_in_json(tmp_path: Path) -> None:
    """
    A file whose name ends in .json is JSON; what it does not speak of is blind.
    """
    (tmp_path / "tools.json").write_text('{"tools": {"search": {"kind": "read-only"}}}')
    found = read_tools_file(str(tmp_path / "tools.json"))

    assert not found.tools["search"].gated
    assert found.others.kind == "blind"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.x]", "the file has 'tool', which is unknown; did you mean 'tools'?"),
        ("[tools.x]\nkindd = 'blind'", "tools.x has 'kindd', which is unknown; did you mean 'kind'?"),
        ("[tools.x]\nkind = 'readonly'", "tools.x: kind is one of read-only, repeatable, keyed, blind, not 'readonly'"),
        ("[tools.x]\nkind = 'probed'", "tools.x: kind 'probed' needs code inside the server"),
        ("[tools.x]\nkind = 'atomic'", "tools.x: kind 'atomic' needs code inside the server"),
        ("[tools.x]\nkey = 7", "tools.x: key is a text"),
        ("[tools.x]\nkey = 'refund:{'", "tools.x: "),
        ("[tools.x]\nlease = 'long'", "tools.x: lease is a number of seconds"),
        ("[tools.x]\nlease = true", "tools.x: lease is a number of seconds"),
        ("[tools.x]\nlease = 100_000", "tools.x: a lease is between"),
        ("[tools.x]\nerrors = 'maybe'", "tools.x: errors is one of release, doubt"),
        ("[tools.x]\nkind = 'read-only'\nkey = 'a'", "tools.x: a read-only tool is never gated"),
        ("[others]\nkey = 'a:{b}'", "others cannot have a key"),
        ("tools = 1", "tools has a table for each tool"),
        ("[tools]\nx = 1", "tools.x must be a table of kind, key"),
        ("[[[", "is not TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    """
    Which file, which tool, what is wrong, what to do; before any server is started.
    """
    path = tmp_path / "tools.toml"
    path.write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        read_tools_file(str(path))

    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """
    The name that was typed, and why it cannot be read.
    """
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml cannot be read: No such file"):
        read_tools_file("nowhere.toml")
