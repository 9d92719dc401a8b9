"""
The contract as functions of PostgreSQL: their texts, and what is found of them in a database.

The texts are plain SQL in `sql/functions`, run in the order of their names. Tables and functions are named with their
schema, because a function that runs with its owner's rights must find nothing by a search path that others can write.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

from onceward._core.errors import SchemaMismatch
from onceward.stores._postgres_rows import MIGRATION_LOCK, qualified
from onceward.stores._upkeep import StoreCheck

FUNCTIONS_VERSION = 2
"""Of the functions that this package installs; the same number is in `1_names.sql`."""
REMOVAL = "remove.sql"
LOCK_SECONDS = 5
"""How long the script waits for the table: while it waits, every later writer waits behind it."""

_BODY = re.compile(r"CREATE OR REPLACE FUNCTION \S*?(onceward_\w+)\(.*?AS \$onceward\$(.*?)\$onceward\$;", re.DOTALL)
PLACE = """SELECT relnamespace::regnamespace::text, relowner::regrole::text FROM pg_class
    WHERE oid = to_regclass('onceward_records')"""
_INSTALLED = """SELECT proname::text, prosrc FROM pg_proc
    WHERE pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('onceward_records'))
    AND proname LIKE 'onceward\\_%'"""
HAS_FUNCTIONS = """SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'onceward_functions_version'
    AND pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('onceward_records')))"""
_VERSION = re.compile(r"\d+")


class Looks(Protocol):
    """A connection to look with."""

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement."""


class TablesPlace(NamedTuple):
    """Where the tables are, and whose: both quoted where that is needed."""

    schema: str
    owner: str


class InstalledFunctions(NamedTuple):
    """What is found of the functions."""

    version: int
    """0: there are none."""
    changed: tuple[str, ...]
    """Names of those that are missing, or not as this package installs them; empty for another version."""


def find_place(look: Looks) -> TablesPlace:
    """Where the tables are."""
    [place] = look.rows(PLACE)
    return TablesPlace(*place)


def find_installed(look: Looks, schema: str) -> InstalledFunctions:
    """Which functions are there. Nothing is changed."""
    found = dict(look.rows(_INSTALLED))
    stated = _VERSION.search(found.get("onceward_functions_version", ""))
    version = int(stated[0]) if stated else 0
    changed = [name for name, body in _BODY.findall(_texts(schema)) if found.get(name) != body]
    return InstalledFunctions(version, tuple(changed) if version == FUNCTIONS_VERSION else ())


def check_functions(look: Looks) -> list[StoreCheck]:
    """The finding of `onceward store check`: none where no functions are installed."""
    found = find_installed(look, find_place(look).schema)
    if not found.version:
        return []
    cure = "run onceward store install-functions"
    if found.version > FUNCTIONS_VERSION:
        detail = f"version {found.version}, this Onceward knows {FUNCTIONS_VERSION}: upgrade it"
    elif found.version < FUNCTIONS_VERSION:
        detail = f"version {found.version}, this Onceward has {FUNCTIONS_VERSION}: {cure}"
    elif found.changed:
        detail = f"missing or changed: {', '.join(found.changed)}; {cure}"
    else:
        return [StoreCheck("functions", True, f"version {found.version}")]
    return [StoreCheck("functions", False, detail)]


def refuse_newer(version: int) -> None:
    """Raise if a later Onceward has installed the functions."""
    if version > FUNCTIONS_VERSION:
        raise SchemaMismatch(
            f"functions of version {version} are installed, and this Onceward has {FUNCTIONS_VERSION}: upgrade it (pip "
            "install -U), or run this with the version that installed them"
        )


def install_script(place: TablesPlace) -> str:
    """What makes the functions, or makes them anew, in one transaction."""
    return _in_one_transaction(place, _texts(place.schema))


def removal_script(place: TablesPlace) -> str:
    """What takes them out again, in one transaction."""
    return _in_one_transaction(place, _text(REMOVAL, place.schema))


def migration_statements(place: TablesPlace) -> tuple[bytes, ...]:
    """What brings installed functions along, at the end of a migration's own transaction."""
    return (
        f"SET LOCAL ROLE {place.owner}".encode(),
        f"SET LOCAL search_path = {place.schema}, pg_temp".encode(),
        _texts(place.schema).encode(),
    )


def _in_one_transaction(place: TablesPlace, text: str) -> str:
    return "\n".join(
        (
            "BEGIN;",
            f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s';",
            "-- One at a time.",
            f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK});",
            "-- Everything belongs to the owner of the tables.",
            f"SET LOCAL ROLE {place.owner};",
            f"SET LOCAL search_path = {place.schema}, pg_temp;",
            "",
            text.strip(),
            "",
            "COMMIT;",
        )
    )


@cache
def _texts(schema: str) -> str:
    names = sorted(one.name for one in files(__package__).joinpath("sql", "functions").iterdir())
    return "\n".join(_text(name, schema) for name in names if name != REMOVAL)


def _text(name: str, schema: str) -> str:
    raw = files(__package__).joinpath("sql", "functions", name).read_bytes()
    return qualified(schema, raw).decode()
