"""
The same without a server: one SQLite file, in this process. For tests and small agents.
"""

from __future__ import annotations

from typing import Any

from onceward._core.canonical import parse_json
from onceward.client.wire import Outgoing, identity_of
from onceward.service.sql.local import LocalDatabase
from onceward.service.sql.requests import Keyed, Statement, Step
from onceward.stores._sqlite_file import parse

SCOPE = "test:local"


class LocalService:
    """Answers requests as the service would, from one file; whichever database they name."""

    def __init__(self, url: str) -> None:
        path, _ = parse(url)
        self._database = LocalDatabase(path)

    def perform(self, outgoing: Outgoing) -> tuple[Any, bool]:
        """The answer's document, and whether it is a replay; errors as the service's."""
        if outgoing.method == "GET":
            return {"tables": [_table(one) for one in self._database.tables()]}, False
        if outgoing.body is None:
            return {"created": False}, False
        headers = outgoing.headers
        found = identity_of(headers.get("Idempotency-Key"), headers.get("Plan-Key"), headers.get("Plan-Step"))
        identity: Keyed | Step | None = None
        if found.key is not None:
            identity = Keyed(SCOPE, found.key)
        elif found.plan is not None and found.step is not None:
            identity = Step(SCOPE, found.plan, found.step)
        body: Any = parse_json(outgoing.body)
        if "statements" in body:
            statements = [Statement(one["sql"], one["params"]) for one in body["statements"]]
            many = self._database.batch(statements, identity=identity)
            return many.document, many.replayed
        one = self._database.query(body["sql"], body["params"], identity=identity)
        return one.document, one.replayed

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()


def _table(table: Any) -> dict[str, Any]:
    columns = [
        {"name": one.name, "type": one.type, "nullable": one.nullable, "primaryKey": one.primary_key}
        for one in table.columns
    ]
    return {"name": table.name, "kind": table.kind, "columns": columns, "rows": table.rows, "exact": table.exact}
