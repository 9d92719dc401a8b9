"""
The file that says what a server's tools are: TOML, or JSON if its name ends in `.json`.

    [tools.create_refund]
    kind = "blind"
    key = "refund:{order_id}"
    check = "list_refunds"

    [others]
    kind = "blind"

Everything is checked before the server is started. Kinds that need code inside the server are refused with the way out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from onceward._core.errors import ConfigurationError, OncewardError, RequestInvalid
from onceward._core.strict_json import parse_json
from onceward._core.terms import DEFAULT_TERMS, Options, apply_options
from onceward.agents.tools import BLIND, Tool

_KINDS = ("read-only", "repeatable", "keyed", "blind")
_DURATIONS = ("lease", "lease_max", "wait", "retain", "tombstone", "keyed_for")
_OPTIONS = (*_DURATIONS, "result_bytes_max")
_FIELDS = ("kind", "key", "check", "errors", *_OPTIONS)
_ERRORS = ("release", "doubt")
_TABLES = ("tools", "others")


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What is known of a server's tools."""

    tools: Mapping[str, Tool]
    others: Tool = BLIND
    """What tools are of which nothing is said."""
    doubtful: frozenset[str] = frozenset()
    """Tools whose reported errors leave doubt: they may have happened all the same."""
    others_doubtful: bool = False

    def errors_leave_doubt(self, name: str) -> bool:
        """Whether an error that the server reports for this tool says nothing about what happened."""
        return name in self.doubtful or (self.others_doubtful and name not in self.tools)


def read_tools_file(path: str) -> ServerTools:
    """What a file says about tools. Raises `ConfigurationError`, which names the file and the place."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}; correct --tools") from None
    try:
        document = parse_json(raw) if path.endswith(".json") else tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, RequestInvalid, UnicodeDecodeError) as error:
        kind = "JSON" if path.endswith(".json") else "TOML"
        raise ConfigurationError(f"{path} is not {kind}: {error}; correct it") from None
    try:
        return _tools_of(document)
    except OncewardError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _tools_of(document: Any) -> ServerTools:
    tables = _table(document, "the file", _TABLES)
    said = tables.get("tools", {})
    if not isinstance(said, dict) or not all(said):
        raise ConfigurationError("tools has a table for each tool: [tools.NAME], with its kind")
    tools = {name: _tool(table, f"tools.{name}") for name, table in said.items()}
    others = _tool(tables.get("others", {}), "others")
    if others[0].key is not None:
        raise ConfigurationError("others cannot have a key: a template uses the arguments of one tool")
    doubtful = frozenset(name for name, (_, doubts) in tools.items() if doubts)
    return ServerTools({name: tool for name, (tool, _) in tools.items()}, others[0], doubtful, others[1])


def _tool(table: Any, place: str) -> tuple[Tool, bool]:
    """A tool, and whether its reported errors leave doubt."""
    said = _table(table, place, _FIELDS)
    kind = said.get("kind", "blind")
    if kind in ("atomic", "probed"):
        raise ConfigurationError(
            f"{place}: kind {kind!r} needs code inside the server (see onceward.agents.mcp); a proxy supports "
            f"{', '.join(_KINDS)}"
        )
    if kind not in _KINDS:
        raise ConfigurationError(f"{place}: kind is one of {', '.join(_KINDS)}, not {str(kind)[:40]!r}")
    for name in ("key", "check"):
        if name in said and (not isinstance(said[name], str) or not said[name]):
            raise ConfigurationError(f"{place}: {name} is a text")
    if said.get("errors", "release") not in _ERRORS:
        raise ConfigurationError(f"{place}: errors is one of {', '.join(_ERRORS)}")
    if kind == "read-only" and said.keys() - {"kind"}:
        raise ConfigurationError(f"{place}: a read-only tool is never gated, so it takes no other settings")
    for name in _DURATIONS:
        if name in said and (isinstance(said[name], bool) or not isinstance(said[name], int | float)):
            raise ConfigurationError(f"{place}: {name} is a number of seconds")
    options = Options(**{name: said[name] for name in _OPTIONS if name in said})  # type: ignore[typeddict-item]
    try:
        tool = Tool(kind, key=said.get("key"), check=said.get("check"), options=options)
        apply_options(DEFAULT_TERMS, tool.terms())
    except OncewardError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    return tool, said.get("errors") == "doubt"


def _table(value: Any, place: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{place} must be a table of {', '.join(known)}")
    for name in value:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ConfigurationError(f"{place} has {name[:40]!r}, which is unknown; {advice}")
    return value
