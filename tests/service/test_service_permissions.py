"""
Who may do what: every endpoint and every tool, by every kind of token, over a real socket.

`ENDPOINTS` and `TOOLS` have a row for each. An endpoint without a row fails here, so that nobody adds one without
saying who may call it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from service_support import TABLE, Heard, Served
from starlette.routing import Route

from onceward.agents.mcp_fields import CODE
from onceward.service.access import Role
from onceward.service.app import open_service
from onceward.service.settings import Settings
from onceward.service.sql.database_files import SUFFIX
from servers import ending

DATABASE, DATABASES, ACCOUNT, TENANT = "one database", "its databases", "its account", "the whole tenant"
RECORDS = "the records of its databases"
DB = "/v1/db/{namespace}/{database}"
BALANCE = "/api/v1/balance"
RECORD = "/v1/records/{id}"


class Row(NamedTuple):
    """What an endpoint is about, the role that it needs, and a body that it takes."""

    about: str
    role: Role
    body: Any = None


SELECT = {"sql": "SELECT 1"}
DELTA = {"customerId": "cus_17", "delta": -1, "reason": "call", "referenceId": "r-1"}

ENDPOINTS: dict[tuple[str, str], Row] = {
    ("POST", f"{DB}/query"): Row(DATABASE, Role.READ, SELECT),
    ("POST", f"{DB}/batch"): Row(DATABASE, Role.READ, {"statements": [SELECT]}),
    ("GET", f"{DB}/tables"): Row(DATABASE, Role.READ),
    ("GET", "/v1/db/{namespace}"): Row(DATABASES, Role.READ),
    ("PUT", DB): Row(DATABASE, Role.ADMIN),
    ("DELETE", DB): Row(DATABASE, Role.ADMIN),
    ("GET", "/v1/records"): Row(RECORDS, Role.ADMIN),
    ("GET", RECORD): Row(RECORDS, Role.ADMIN),
    ("POST", f"{RECORD}/reconcile"): Row(TENANT, Role.ADMIN, {"result": 1}),
    ("POST", f"{RECORD}/release"): Row(TENANT, Role.ADMIN, {}),
    ("POST", f"{BALANCE}/delta"): Row(TENANT, Role.WRITE, DELTA),
    ("POST", f"{BALANCE}/delta/batch"): Row(TENANT, Role.WRITE, {"deltas": [DELTA]}),
    ("POST", f"{BALANCE}/checkpoint"): Row(TENANT, Role.WRITE, {"customerId": "cus_17"}),
    ("GET", f"{BALANCE}/derive/{{customer}}"): Row(TENANT, Role.READ),
    ("GET", f"{BALANCE}/receipt/{{customer}}"): Row(TENANT, Role.READ),
    ("GET", f"{BALANCE}/delta/{{id}}"): Row(TENANT, Role.READ),
    ("GET", f"{BALANCE}/gaps/{{customer}}"): Row(TENANT, Role.READ),
    ("GET", "/v1/journal"): Row(TENANT, Role.ADMIN),
    ("GET", "/v1/decisions"): Row(TENANT, Role.ADMIN),
    ("GET", "/v1/usage"): Row(ACCOUNT, Role.READ),
}

OTHERWISE = {
    ("POST", "/hooks/{source}"): "no token: the signature over the body is the credential",
    ("POST", "/mcp"): "any valid token; each tool is a call of the API with that token, see TOOLS",
    ("GET", "/health"): "says only that it lives",
    ("GET", "/ready"): "says only that it can serve",
    ("GET", "/openapi.json"): "what there is, the same for everybody",
    ("GET", "/"): "the same as a page",
    ("GET", "/page/{name}"): "the style and the script of that page, the same for everybody",
    ("GET", "/.well-known/idempotency"): "what is promised about keys",
    ("GET", "/.well-known/idempotency/{code}"): "what an error means",
}
"""Addresses that ask for no token, or for any; each with the reason."""

TOOLS: dict[str, tuple[str, Role, dict[str, Any]]] = {
    "query": (DATABASE, Role.READ, {"sql": "SELECT 1"}),
    "plan_step": (DATABASE, Role.READ, {"sql": "SELECT 1", "plan": "p", "step": "s"}),
    "emit": (TENANT, Role.WRITE, {"customerId": "cus_17", "delta": -1, "reason": "call", "key": "k"}),
    "derive": (TENANT, Role.READ, {"customerId": "cus_17"}),
    "records_in_doubt": (RECORDS, Role.ADMIN, {}),
}


class Kind(NamedTuple):
    """A kind of token. `databases` is what it is for: all, or one of them."""

    tenant: str
    environment: str
    role: Role
    databases: tuple[str, ...] | None

    def may(self, about: str, role: Role, tenant: str, database: str) -> bool:
        """Whether a call must go through: the whole rule, said once more in other words."""
        if list(Role).index(self.role) < list(Role).index(role):
            return False
        if about in (ACCOUNT, RECORDS):
            return True  # Figures without names; records of what the token is for (test_service_sql_records.py).
        if about == TENANT:
            return self.databases is None  # Its path names no tenant: what it shows is the caller's own.
        if self.tenant != tenant:
            return False
        return about == DATABASES or self.databases is None or database in self.databases


KINDS = [
    Kind(tenant, environment, role, databases)
    for tenant, environment, role, databases in itertools.product(
        ("acme", "rival"), ("test", "live"), Role, (None, ("shop",), ("other",))
    )
]


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """One with tools, and two tenants who have the same databases in both environments."""
    made = Served.started(ending.folder("onceward-permissions-"), "--mcp", "--flood-burst", "100000")
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def tokens(service: Served) -> dict[Kind, str]:
    """A token of each kind."""
    with service.access() as access:
        for tenant in ("acme", "rival"):
            access.create_tenant(tenant)
        made = {
            kind: access.create_token(
                kind.tenant, environment=kind.environment, role=kind.role, databases=kind.databases
            ).issued.text
            for kind in KINDS
        }
    for kind, token in made.items():
        if kind.role == Role.ADMIN and kind.databases is None:
            _fill(service, kind.tenant, token)
    return made


def _fill(service: Served, tenant: str, token: str) -> None:
    for database in ("shop", "other"):
        service.call("PUT", f"/v1/db/{tenant}/{database}", token=token)
        service.query(
            f"/v1/db/{tenant}/{database}", TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"), token=token
        )


def _called(service: Served, kind: Kind, token: str, method: str, path: str, body: Any, names: dict[str, str]) -> Heard:
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return service.call(method, path, body, token=token)


def _routed(app: Any) -> Any:
    """What routes requests, inside of whatever is around it."""
    while not hasattr(app, "routes"):
        app = app._app
    return app


def test_every_address_of_the_service_is_in_the_table(tmp_path: Path) -> None:
    """
    Add a row: what the endpoint is about, and which role it needs; or why it needs no token.
    """

    async def addresses() -> set[tuple[str, str]]:
        async with open_service(Settings(folder=str(tmp_path / "data"), mcp=True, readers=1, writers=1)) as made:
            routes = [one for one in _routed(made.app).routes if isinstance(one, Route)]
            assert len(routes) == len(_routed(made.app).routes)
            # Pages for people are asked for with a session: tests/dashboard/test_service_dashboard.py has all of them.
            api = [one for one in routes if not f"{one.path}/".startswith("/dashboard/")]
            return {(method, one.path) for one in api for method in (one.methods or ()) if method != "HEAD"}

    assert asyncio.run(addresses()) == {*ENDPOINTS, *OTHERWISE}


@pytest.mark.fault("a-token-of-one-database-is-for-all-of-the-tenant")
@pytest.mark.fault("a-token-reaches-every-database")
@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
def test_a_token_does_what_it_is_for_and_nothing_else(
    service: Served, tokens: dict[Kind, str], method: str, path: str
) -> None:
    """
    36 kinds of tokens, on a tenant's database: 403 for all that the rule does not allow, anything else for the rest.
    """
    row = ENDPOINTS[method, path]
    wrong = []
    for kind, token in tokens.items():
        names = {"namespace": "acme", "database": "shop", "id": "0" * 12, "customer": "cus_17"}
        heard = _called(service, kind, token, method, path, row.body, names)
        allowed = kind.may(row.about, row.role, "acme", "shop")
        if (heard.status == 403) is allowed or heard.status in (401, 415, 500):
            wrong.append((kind, heard.status, heard.body[:200]))
        if method == "DELETE" and heard.status == 200:
            _fill(service, "acme", tokens[kind._replace(role=Role.ADMIN, databases=None)])

    assert wrong == []


@pytest.mark.fault("a-token-of-one-database-lists-all")
def test_a_token_of_one_database_sees_the_name_of_no_other(service: Served, tokens: dict[Kind, str]) -> None:
    """
    The list of databases has those that the token is for.
    """
    seen = {
        kind.databases: service.call("GET", "/v1/db/acme", token=token).document["databases"]
        for kind, token in tokens.items()
        if (kind.tenant, kind.environment, kind.role) == ("acme", "live", Role.READ)
    }

    assert seen == {None: ["other", "shop"], ("shop",): ["shop"], ("other",): ["other"]}


@pytest.mark.parametrize("name", ["SHOP", "shop" + SUFFIX, "..%2fother", "shop%00", "shop/", "%6fther"])
def test_no_spelling_of_a_name_gets_around_the_list(service: Served, tokens: dict[Kind, str], name: str) -> None:
    """
    The name is compared as it is used.
    """
    token = tokens[Kind("acme", "test", Role.ADMIN, ("shop",))]
    heard = service.call("POST", f"/v1/db/acme/{name}/query", SELECT, token=token)
    assert heard.status in (403, 404)


class TestTools:
    def test_every_tool_is_in_the_table(self, service: Served) -> None:
        """
        Add a row: what it is about, and which role it needs.
        """
        listed = service.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).document
        assert {one["name"] for one in listed["result"]["tools"]} == set(TOOLS)

    @pytest.mark.parametrize("tool", TOOLS)
    def test_a_tool_does_what_its_token_may(self, service: Served, tokens: dict[Kind, str], tool: str) -> None:
        """
        The same rule as for the API: a tool is a call of it. The tenant is always the caller's own.
        """
        about, role, arguments = TOOLS[tool]
        wrong = []
        for number, (kind, token) in enumerate(tokens.items()):
            given = {**arguments, **({"database": "shop"} if about == DATABASE else {})}
            given |= {"step": f"s{number}"} if "step" in given else {}
            document = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": given}}
            result = service.call("POST", "/mcp", document, token=token).document["result"]
            refused = result["isError"] and result["_meta"][CODE] == "forbidden"
            if refused is kind.may(about, role, kind.tenant, "shop"):
                wrong.append((kind, result))

        assert wrong == []
