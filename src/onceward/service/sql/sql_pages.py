"""
The databases' page of the dashboard: tables, and a box for a statement that only reads.

Everything is a call of the service's own API with the token that somebody logged in with: what a token may not do over
HTTP, it may not do here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp

from onceward._core.errors import RequestInvalid
from onceward.dashboard.html import Content, Markup, element
from onceward.dashboard.layout import area, badge, code, empty, form, link, notice, section, table, words
from onceward.dashboard.page import Page, PageMissing, PageRequest, Shown
from onceward.protocol.paths import DATABASES, database_path
from onceward.service.web.api_calls import ApiAnswer, ApiRequest, call_api

ROWS_SHOWN = 200
CELL_SHOWN = 200


class SqlPages:
    """The pages over one API."""

    def __init__(self, only_reads: Callable[[str], bool]) -> None:
        self._only_reads = only_reads
        self.api: ASGIApp | None = None
        """Set when the API is put together: these pages are part of it."""

    def pages(self) -> tuple[Page, ...]:
        """Where they are."""
        return (
            Page("databases", "/databases", run_async=self.listing, title="Databases"),
            Page("databases", "/databases/{database}", run_async=self.show),
            Page("databases", "/databases/{database}", run_async=self.query, action=True),
        )

    async def listing(self, ask: PageRequest) -> Shown:
        """The databases of the tenant."""
        names = (await self._ask(ask, "GET", f"{DATABASES}/{ask.reach.tenant}"))["databases"]
        if not names:
            nothing = empty("This tenant has no database.", f"PUT {DATABASES}/{ask.reach.tenant}/NAME makes one.")
            return Shown("Databases", nothing)
        rows = [(link(ask.chrome, f"/databases/{name}", code(name, 80)),) for name in names]
        return Shown("Databases", section(f"{len(names):,} databases", table(("Name",), rows, label="Databases")))

    async def show(self, ask: PageRequest) -> Shown:
        """One database."""
        return Shown(f"Database {words(ask.names['database'], 60)}", await self._page(ask, ""))

    async def query(self, ask: PageRequest) -> Shown:
        """One database, and what a statement found in it."""
        sql = ask.form.get("sql", "").strip()
        if not sql or not self._only_reads(sql):
            raise RequestInvalid(
                "only a statement that reads is run here, such as SELECT: writes need a key, over the API"
            )
        path = database_path(str(ask.reach.tenant), ask.names["database"]) + "/query"
        answer = await self._call(ask, ApiRequest("POST", path, {"sql": sql}))
        if answer.status != 200:
            shown: Content = notice("bad", words(_problem(answer), 500), alert=True)
        else:
            shown = section("Result", _result(msgspec.json.decode(answer.body)))
        return Shown(f"Database {words(ask.names['database'], 60)}", await self._page(ask, sql, shown))

    async def _page(self, ask: PageRequest, sql: str, result: Content = None) -> list[Content]:
        database = ask.names["database"]
        path = database_path(str(ask.reach.tenant), database) + "/tables"
        tables = (await self._ask(ask, "GET", path))["tables"]
        box = form(
            ask.chrome,
            f"/databases/{database}",
            area(
                "A statement that reads",
                "sql",
                value=sql,
                rows=3,
                help="It runs with your token's rights and limits, and changes nothing.",
            ),
            element("button", "Run", class_="primary"),
        )
        return [section("Query", box), result, section("Tables", _tables(tables))]

    async def _ask(self, ask: PageRequest, method: str, path: str) -> Any:
        answer = await self._call(ask, ApiRequest(method, path))
        if answer.status in (403, 404):
            raise PageMissing
        if answer.status != 200:
            raise RequestInvalid(_problem(answer))
        return msgspec.json.decode(answer.body)

    async def _call(self, ask: PageRequest, wanted: ApiRequest) -> ApiAnswer:
        if self.api is None or ask.principal.credential is None or ask.reach.tenant is None:
            raise PageMissing
        token = ("authorization", f"Bearer {ask.principal.credential}")
        return await call_api(self.api, ask.http, wanted._replace(headers=(token,)))


def _problem(answer: ApiAnswer) -> str:
    try:
        found = msgspec.json.decode(answer.body)
        return str(found.get("message") or found["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"the service answered {answer.status}"


def _tables(tables: list[dict[str, Any]]) -> Content:
    if not tables:
        return empty("There is no table yet.", "CREATE TABLE makes one, over the API.")
    rows = [
        (
            code(one["name"], 80),
            one["kind"],
            ("about " if not one["exact"] else "") + f"{one['rows']:,}" if one["rows"] is not None else "not counted",
            [_column(column) for column in one["columns"]],
        )
        for one in tables
    ]
    return table(("Table", "Kind", "Rows", "Columns"), rows, label="Tables")


def _column(column: dict[str, Any]) -> Markup:
    key = badge("valid", "key") if column["primaryKey"] else None
    return element("div", code(column["name"], 60), " ", element("span", column["type"], class_="note"), " ", key)


def _result(answer: dict[str, Any]) -> Content:
    rows, columns = answer.get("rows") or [], answer.get("columns") or []
    if not rows:
        return empty("No rows.", "The statement found nothing.")
    headings = [str(one) for one in columns] or [str(number) for number in range(1, len(rows[0]) + 1)]
    shown = [[_cell(cell) for cell in (row.values() if isinstance(row, dict) else row)] for row in rows[:ROWS_SHOWN]]
    more = (
        element("p", f"The first {ROWS_SHOWN:,} of {len(rows):,} rows.", class_="note")
        if len(rows) > ROWS_SHOWN
        else None
    )
    return [element("div", table(headings, shown, label="Result"), class_="wide"), more]


def _cell(value: Any) -> Content:
    if value is None:
        return element("span", "NULL", class_="note")
    return words(value if isinstance(value, str) else msgspec.json.encode(value).decode(), CELL_SHOWN)
