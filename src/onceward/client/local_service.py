"""
`LocalService`: handles a client's calls from one SQLite file in this process. For tests and small agents.
"""

from __future__ import annotations

from typing import Any, TypeVar

from onceward._core.canonical import parse_json
from onceward._core.errors import ConfigurationError
from onceward.client.service_call import ServiceCall, ServiceRequest, identity_of
from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP
from onceward.protocol.paths import DATABASES
from onceward.service.sql.local_database import LocalDatabase
from onceward.service.sql.requests import Keyed, SqlStatement, Step
from onceward.stores._sqlite_file import parse

T = TypeVar("T")

SCOPE = "test:local"


class LocalService:
    """Handles requests as the service would. The file is one database."""

    def __init__(self, url: str) -> None:
        path, _ = parse(url)
        self._database = LocalDatabase(path)
        self._path: str | None = None

    def bind(self, path: str) -> None:
        """Use the file as this database; refused if it is used as another one already."""
        if self._path not in (None, path):
            raise ConfigurationError(
                "a local file is one database, and this client already uses it under another name. Open a "
                "second file with a second client"
            )
        self._path = path

    def ask(self, call: ServiceCall[T]) -> T:
        """The result of a call; raises what the service would."""
        outgoing = call.outgoing
        if not outgoing.path.startswith(f"{DATABASES}/"):
            raise ConfigurationError("a local file has SQL only. For anything else, start `onceward serve`")
        if outgoing.method == "DELETE":
            raise ConfigurationError("a client does not delete its local file: close the client, then delete the file")
        document, replayed = self._perform(outgoing)
        return call.read(document, replayed, {})

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _perform(self, outgoing: ServiceRequest) -> tuple[Any, bool]:
        if outgoing.method == "GET":
            return {"tables": [_table(one) for one in self._database.tables()]}, False
        if outgoing.body is None:
            return {"created": False}, False  # It was made when it was opened.
        headers = outgoing.headers
        found = identity_of(headers.get(IDEMPOTENCY_KEY), headers.get(PLAN_KEY), headers.get(PLAN_STEP))
        identity: Keyed | Step | None = None
        if found.key is not None:
            identity = Keyed(SCOPE, found.key)
        elif found.plan is not None and found.step is not None:
            identity = Step(SCOPE, found.plan, found.step)
        body: Any = parse_json(outgoing.body)
        if "statements" in body:
            statements = [SqlStatement(one["sql"], one["params"]) for one in body["statements"]]
            many = self._database.batch(statements, identity=identity)
            return many.document, many.replayed
        one = self._database.query(body["sql"], body["params"], identity=identity)
        return one.document, one.replayed


def _table(table: Any) -> dict[str, Any]:
    columns = [
        {"name": one.name, "type": one.type, "nullable": one.nullable, "primaryKey": one.primary_key}
        for one in table.columns
    ]
    return {"name": table.name, "kind": table.kind, "columns": columns, "rows": table.rows, "exact": table.exact}
