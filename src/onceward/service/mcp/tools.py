"""
The tools: what a model reads of each, what it takes, and the call of the API that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from onceward._core.errors import KeyMissing
from onceward.protocol.headers import IDEMPOTENCY_KEY, PLAN_KEY, PLAN_STEP
from onceward.protocol.paths import BALANCE, database_path
from onceward.service.web.api_calls import ApiRequest

KEYS: Final = (
    "A key names one thing that must happen only once, such as 'order-42:charge'. Make it from what the work is "
    "about, never at random. If you do not know whether a call went through, make the same call with the same key and "
    "the "
    "same arguments: if it went through, you get its first result, and nothing happens again. Use a "
    "different key for anything else."
)
"""What a model is told of keys."""


def instructions(tools: Mapping[str, ServiceTool]) -> str:
    """What a model is told of these tools."""
    sql = "SQL databases, " if "query" in tools else ""
    return f"Tools of an Onceward service: {sql}balances and records in which every change happens once. " + KEYS


Key = Annotated[str, Meta(description="The key of this change. " + KEYS)]
Database = Annotated[str, Meta(description="The name of the database.")]
Params = Annotated[Raw, Meta(description="Values for the statement: a list for ?, an object for :name.")]


class QueryArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `query` takes."""

    database: Database
    sql: Annotated[str, Meta(description="One statement of SQLite's SQL.")]
    params: Params | UnsetType = UNSET
    key: Annotated[str, Meta(description="Needed if the statement changes anything. " + KEYS)] | None = None


class PlanStepArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `plan_step` takes."""

    database: Database
    plan: Annotated[str, Meta(description="The name of the piece of work, such as 'import-2026-11'.")]
    step: Annotated[str, Meta(description="The name of this step in it, such as 'create-tables'.")]
    sql: Annotated[str, Meta(description="One statement of SQLite's SQL.")]
    params: Params | UnsetType = UNSET


class EmitArguments(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What `emit` takes."""

    customer_id: str
    delta: Annotated[Raw, Meta(description="The change: a number, or its digits in a text. Not zero.")]
    reason: str
    key: Key | None = None
    reference_id: Annotated[str, Meta(description="Your name for it: it is booked once, whatever the key.")] | None = (
        None
    )
    metadata: Raw | UnsetType = UNSET
    corrects: Annotated[str, Meta(description="The id of the delta that this one corrects.")] | None = None
    period: Annotated[str, Meta(description="A month such as 2026-11; the current month by default.")] | None = None


class DeriveArguments(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """What `derive` takes."""

    customer_id: str
    period: Annotated[str, Meta(description="A month such as 2026-11; the current month by default.")] | None = None


class RecordsInDoubtArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What `records_in_doubt` takes."""

    after: Annotated[str, Meta(description="Where to start: what the previous page ended with.")] | None = None


class ServiceTool(NamedTuple):
    """One tool."""

    name: str
    description: str
    arguments: type[msgspec.Struct]
    request: Callable[[Any, str, str | None], ApiRequest]
    """From the arguments, the caller's tenant and the key in `_meta` to the call of the API."""
    read_only: bool = False
    shown: Callable[[bytes], bytes] | None = None
    """What is shown of the API's answer; without it, all of it."""

    def document(self) -> dict[str, Any]:
        """As `tools/list` shows it."""
        _, components = msgspec.json.schema_components((self.arguments,))
        schema = {name: part for name, part in components[self.arguments.__name__].items() if name != "title"}
        hints = {"readOnlyHint": True} if self.read_only else {"idempotentHint": True, "destructiveHint": True}
        return {
            "name": self.name,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {**hints, "openWorldHint": False},
        }


def make_tools(only_reads: Callable[[str], bool] | None) -> dict[str, ServiceTool]:
    """Every tool. `only_reads` says whether a statement changes nothing, and needs no key; None: there is no SQL."""
    return {tool.name: tool for tool in (*(() if only_reads is None else _sql_tools(only_reads)), *_OTHER_TOOLS)}


def _sql_tools(only_reads: Callable[[str], bool]) -> tuple[ServiceTool, ...]:

    def query(given: QueryArguments, tenant: str, sent: str | None) -> ApiRequest:
        key = None if only_reads(given.sql) else _demanded(given.key or sent)  # What is read is read anew each time.
        headers = () if key is None else ((IDEMPOTENCY_KEY, key),)
        return ApiRequest("POST", f"{database_path(tenant, given.database)}/query", _statement(given), headers)

    def plan_step(given: PlanStepArguments, tenant: str, sent: str | None) -> ApiRequest:
        headers = ((PLAN_KEY, given.plan), (PLAN_STEP, given.step))
        return ApiRequest("POST", f"{database_path(tenant, given.database)}/query", _statement(given), headers)

    return (
        ServiceTool("query", "Run one SQL statement. A statement that changes anything needs a key. " + KEYS,
                    QueryArguments, query),
        ServiceTool("plan_step", "Run one SQL statement as a step of a plan, once: for work of several steps that may "
                    "be interrupted. To resume it, make the calls again from the first step: steps that were done give "
                    "their first results, and the others are done.", PlanStepArguments, plan_step),
    )  # fmt: skip


def _demanded(key: str | None) -> str:
    if not key:
        raise KeyMissing(
            "this statement changes data, and it was called without a key, so nothing was done. Call it with a key. "
            + KEYS
        )
    return key


def _statement(given: QueryArguments | PlanStepArguments) -> dict[str, Any]:
    return {"sql": given.sql} if given.params is UNSET else {"sql": given.sql, "params": given.params}


def _emit(given: EmitArguments, tenant: str, sent: str | None) -> ApiRequest:
    key = given.key or sent
    if given.reference_id is None:
        key = _demanded(key)
    body = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not None and value is not UNSET and name != "key"
    }
    renamed = {"customer_id": "customerId", "reference_id": "referenceId"}
    headers = () if key is None else ((IDEMPOTENCY_KEY, key),)
    return ApiRequest(
        "POST", f"{BALANCE}/delta", {renamed.get(name, name): value for name, value in body.items()}, headers
    )


def _derive(given: DeriveArguments, tenant: str, sent: str | None) -> ApiRequest:
    period = "" if given.period is None else "?" + urlencode({"period": given.period})
    return ApiRequest("GET", f"{BALANCE}/derive/{quote(given.customer_id, safe='')}{period}")


def _records_in_doubt(given: RecordsInDoubtArguments, tenant: str, sent: str | None) -> ApiRequest:
    after = {} if given.after is None else {"after": given.after}
    return ApiRequest("GET", "/v1/records?" + urlencode({"unsettled": "true", **after}))


def _those_in_doubt(body: bytes) -> bytes:
    page = msgspec.json.decode(body)
    page["records"] = [record for record in page["records"] if record["state"] == "in_doubt"]
    return msgspec.json.encode(page)


_OTHER_TOOLS: Final = (
    ServiceTool("emit", "Book a change of a customer's balance. It needs a key or a reference. " + KEYS,
                EmitArguments, _emit),
    ServiceTool("derive", "Show a customer's balance, derived from what was booked.", DeriveArguments, _derive,
                read_only=True),
    ServiceTool("records_in_doubt", "Show what may or may not have happened, because it was interrupted. None of "
                "it may be done again until a person has decided. Needs an admin token.",
                RecordsInDoubtArguments, _records_in_doubt, read_only=True, shown=_those_in_doubt),
)  # fmt: skip
"""Tools of services with and without SQL."""
