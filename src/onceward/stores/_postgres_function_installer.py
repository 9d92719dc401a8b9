"""
Install the functions of PostgreSQL in a store's database, or take them out again: each in one transaction.

What is run is the text that `--sql` prints, so what an administrator reviews is what happens.
"""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from onceward._core.errors import SchemaMismatch, StoreUnavailable
from onceward.stores import _postgres_flow as flows
from onceward.stores._postgres_errors import DRIVER_ERRORS, first_line, translate_error
from onceward.stores._postgres_functions import (
    FUNCTIONS_VERSION,
    find_installed,
    find_place,
    install_script,
    refuse_newer,
    removal_script,
)
from onceward.stores._postgres_upkeep import Inspection, inspecting

_NO_RIGHT, _LOCKED, _DEPENDED_ON = "42501", "55P03", "2BP01"


class FunctionsMove(NamedTuple):
    """What was done about the functions."""

    schema: str
    before: int
    after: int
    """Versions; 0: there are none."""


def planned_script(url: str, *, remove: bool = False) -> str:
    """The SQL that `install` or `remove` would run in this database."""
    with inspecting(url) as look:
        if not remove:
            _check_schema(look)
        place = find_place(look)
        refuse_newer(find_installed(look, place.schema).version)
        return removal_script(place) if remove else install_script(place)


def install(url: str) -> FunctionsMove:
    """Make the functions, or bring them to this version. Again does no harm, and rights that were granted stay."""
    with inspecting(url) as look:
        _check_schema(look)
        place = find_place(look)
        before = find_installed(look, place.schema).version
        refuse_newer(before)
        _run(look, install_script(place))
        return FunctionsMove(place.schema, before, FUNCTIONS_VERSION)


def remove(url: str) -> FunctionsMove:
    """Take the functions out. Tables and records stay."""
    with inspecting(url) as look:
        place = find_place(look)
        before = find_installed(look, place.schema).version
        refuse_newer(before)
        _run(look, removal_script(place))
        return FunctionsMove(place.schema, before, 0)


def _check_schema(look: Inspection) -> None:
    version = look.version()  # Refuses a later one.
    if version < flows.LATEST:
        raise SchemaMismatch(
            f"{look.target.name} has schema version {version}, and the functions need {flows.LATEST}: run "
            "onceward store migrate first"
        )


def _run(look: Inspection, script: str) -> None:
    try:
        look.connection.execute(script.encode())
    except psycopg.Error as error:
        raise _meaning(error, look.target.name) from None
    except DRIVER_ERRORS as error:
        raise translate_error(error, look.target.name) from None


def _meaning(error: psycopg.Error, name: str) -> Exception:
    if error.sqlstate == _NO_RIGHT:
        return StoreUnavailable(
            f"{name}: this role may not do that ({first_line(error)}); nothing was changed. Run it as the owner of "
            "onceward_records, with CREATE on its schema, or let the owner run what --sql prints"
        )
    if error.sqlstate == _LOCKED:
        return StoreUnavailable(
            f"{name}: other transactions held onceward_records for too long; nothing was changed. Run it again when "
            "it is quieter",
            retry_after_seconds=1.0,
        )
    if error.sqlstate == _DEPENDED_ON:
        return StoreUnavailable(
            f"{name}: something else depends on the functions ({error.diag.message_detail or first_line(error)}); "
            "nothing was changed. Drop that first"
        )
    return translate_error(error, name)
