"""`onceward serve --mcp`: the service's tools, called by the SDK's own client over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from service_support import INSERT, Served

from onceward.agents.mcp import KeyedClient, was_replayed
from onceward.agents.mcp_fields import CODE, KEY, REPLAYED
from onceward.service.settings import load_settings
from servers import ending

TOOLS = {"query", "plan_step", "emit", "derive", "records_in_doubt"}


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """One that offers its tools."""
    made = Served.started(ending.folder("onceward-mcp-"), "--mcp", "--flood-burst", "100000")
    try:
        yield made
    finally:
        made.stop()


def ask(service: Served, work: Callable[[Client], Awaitable[Any]], token: str | None = None, mode: str = "auto") -> Any:
    """Connect as an agent would, and do something."""

    async def connected() -> Any:
        headers = {"Authorization": f"Bearer {service.token if token is None else token}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(f"{service.address}/mcp", http_client=http), mode=mode) as client,
        ):
            return await work(client)

    try:
        return asyncio.run(connected())
    except BaseExceptionGroup as group:
        found: BaseException = group
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        raise found from None


def call(service: Served, tool: str, arguments: dict[str, Any], meta: Any = None, token: str | None = None) -> Any:
    """One call of one tool."""
    return ask(service, lambda client: client.call_tool(tool, arguments, meta=meta), token)


def rpc(service: Served, document: Any, **more: Any) -> Any:
    """One message, as a stranger would send it."""
    return service.call("POST", "/mcp", document, **more)


def database_of(path: str) -> str:
    """The name of a database, which is what a model knows."""
    return path.rpartition("/")[2]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_an_agent_finds_the_tools_and_what_keys_are(service: Served, mode: str) -> None:
    listed = ask(service, lambda client: client.list_tools(), mode=mode).tools

    assert {tool.name for tool in listed} == TOOLS
    for name in ("query", "emit"):
        (described,) = [tool.description for tool in listed if tool.name == name]
        assert "the same key and the same arguments" in described
    assert {tool.name for tool in listed if tool.annotations.read_only_hint} == {"derive", "records_in_doubt"}


@pytest.mark.fault("service-mcp-drops-the-key")
def test_a_statement_with_a_key_is_run_once(service: Served) -> None:
    """The second answer is the first one, and says so."""
    path = service.database()
    insert = {"database": database_of(path), "sql": INSERT, "params": ["e-1", "click"], "key": "evt-1"}

    first, second = call(service, "query", insert), call(service, "query", insert)

    assert service.count(path) == 1
    assert (first.is_error, second.is_error) == (False, False)
    assert (was_replayed(first), was_replayed(second)) == (False, True)
    assert second.structured_content == first.structured_content


def test_the_key_is_the_one_of_the_api(service: Served) -> None:
    """One text, one record: what was done over HTTP is not done again by an agent."""
    path = service.database()
    service.query(path, INSERT, ["e-1", "click"], key="evt-1")

    again = call(
        service, "query", {"database": database_of(path), "sql": INSERT, "params": ["e-1", "click"], "key": "evt-1"}
    )

    assert (service.count(path), was_replayed(again)) == (1, True)


@pytest.mark.fault("service-mcp-writes-without-a-key")
def test_a_change_without_a_key_is_refused_and_reading_needs_none(service: Served) -> None:
    path = service.database()
    insert = {"database": database_of(path), "sql": INSERT, "params": ["e-1", "click"]}

    refused = call(service, "query", insert)
    read = [
        call(service, "query", {"database": database_of(path), "sql": "SELECT count(*) FROM events", "key": "k"})
        for _ in range(2)
    ]

    assert (refused.is_error, (refused.meta or {}).get(CODE)) == (True, "key_missing")
    assert service.count(path) == 0
    assert [was_replayed(one) for one in read] == [False, False]


def test_a_client_may_send_the_key_in_meta(service: Served) -> None:
    path = service.database()
    insert = {"database": database_of(path), "sql": INSERT, "params": ["e-1", "click"]}

    async def twice(client: Client) -> Any:
        return [await KeyedClient(client, run="r-1").call_tool("query", insert) for _ in range(2)]

    first, second = ask(service, twice)

    assert (service.count(path), first.is_error, was_replayed(second)) == (1, False, True)


def test_steps_of_a_plan_are_resumed(service: Served) -> None:
    path = service.database()
    step = {"database": database_of(path), "plan": "p-1", "step": "s-1", "sql": INSERT, "params": ["e-1", "click"]}

    call(service, "plan_step", step)
    again = call(service, "plan_step", step)

    assert (service.count(path), (again.meta or {})[REPLAYED]) == (1, True)


def test_a_balance_is_booked_once_and_derived_to_the_last_digit(service: Served) -> None:
    emit = {"customerId": "cus_1", "delta": "0.100000001", "reason": "api call", "key": "call-1"}

    booked = [call(service, "emit", emit) for _ in range(2)]
    balance = call(service, "derive", {"customerId": "cus_1"})
    refused = call(service, "emit", {"customerId": "cus_1", "delta": 1, "reason": "no key"})

    assert [one.is_error for one in booked] == [False, False]
    assert was_replayed(booked[1])
    assert "0.100000001" in json.dumps(balance.structured_content)
    assert refused.meta[CODE] == "key_missing"


def test_numbers_go_on_as_they_came(service: Served) -> None:
    body = (
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "emit", "arguments": {"customerId": '
        '"cus_2", "delta": 0.30000000000000000, "reason": "x", "key": "exact-1"}}}'
    )

    rpc(service, None, raw=body.encode())
    balance = call(service, "derive", {"customerId": "cus_2"})

    assert "0.3" in json.dumps(balance.structured_content)
    assert "0.30000000000000004" not in json.dumps(balance.structured_content)


def test_records_in_doubt_are_for_admins(service: Served) -> None:
    shown = call(service, "records_in_doubt", {})
    refused = call(service, "records_in_doubt", {}, token=service.new_token(role="write"))

    assert shown.structured_content["records"] == []
    assert (refused.is_error, refused.meta[CODE]) == (True, "forbidden")


class TestPermissions:
    @pytest.mark.fault("service-mcp-asks-for-no-token")
    def test_without_a_token_nothing_is_answered(self, service: Served) -> None:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

        assert rpc(service, listing, token="").status == 401
        assert rpc(service, listing, token="ow_test_wrong").status == 401

    def test_a_token_for_reading_does_not_write(self, service: Served) -> None:
        path, reader = service.database(), service.new_token(role="read")
        insert = {"database": database_of(path), "sql": INSERT, "params": ["e-1", "click"], "key": "evt-1"}

        refused = call(service, "query", insert, token=reader)
        read = call(
            service, "query", {"database": database_of(path), "sql": "SELECT count(*) FROM events"}, token=reader
        )

        assert (refused.is_error, service.count(path), read.is_error) == (True, 0, False)

    def test_a_tenant_reaches_its_own_databases_only(self, service: Served) -> None:
        """Whatever name a model makes up: a database of another tenant, or another address of the API."""
        path, other = service.database(), service.new_token(tenant="globex")
        name = database_of(path)

        for database in (name, f"../demo/{name}", f"..%2Fdemo%2F{name}", f"{name}/query?x=", "", "\x00", "a" * 300):
            refused = call(service, "query", {"database": database, "sql": "SELECT count(*) FROM events"}, token=other)
            assert refused.is_error, database


class TestTheProtocol:
    def test_unknown_methods_tools_and_arguments_are_refused(self, service: Served) -> None:
        unknown = rpc(service, {"jsonrpc": "2.0", "id": 7, "method": "resources/list"})
        wrong = call(service, "query", {"database": "d", "sql": "SELECT 1", "colour": "red"})

        assert (unknown.status, unknown.document["error"]["code"], unknown.document["id"]) == (200, -32601, 7)
        assert (wrong.is_error, wrong.meta[CODE]) == (True, "request_invalid")
        with pytest.raises(MCPError, match="there is no tool"):
            call(service, "nothing", {})

    @pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"[" * 100_000, b"\xff", b'{"jsonrpc": 1}'])
    def test_what_is_no_message_is_refused(self, service: Served, raw: bytes) -> None:
        heard = rpc(service, None, raw=raw)

        assert (heard.status, heard.document["error"]["code"] in (-32700, -32600)) == (400, True)

    def test_notifications_are_taken_and_other_methods_of_http_are_not(self, service: Served) -> None:
        taken = rpc(service, {"jsonrpc": "2.0", "method": "notifications/initialized"})

        assert (taken.status, taken.body) == (202, b"")
        assert service.call("GET", "/mcp").status == 405

    def test_the_keys_of_the_outer_request_are_not_those_of_the_tool(self, service: Served) -> None:
        """A proxy that marks every request would otherwise make all of them one."""
        path = service.database()
        listing: dict[str, Any] = {"database": database_of(path), "sql": INSERT}
        for number in (1, 2):
            arguments = {**listing, "params": [f"e-{number}", "x"], "key": f"k-{number}"}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            rpc(
                service,
                {**message, "params": {"name": "query", "arguments": arguments}},
                headers={"Idempotency-Key": "outer"},
            )

        assert service.count(path) == 2

    def test_a_key_that_no_header_can_carry_is_refused(self, service: Served) -> None:
        path = service.database()
        for key in ("snow \u2603", "a\r\nb: c", "x" * 300):
            insert = {"database": database_of(path), "sql": INSERT, "params": ["e-1", "x"], "key": key}
            assert call(service, "query", insert).is_error, key
        weird = call(service, "query", {"database": database_of(path), "sql": INSERT}, meta={KEY: 7})

        assert (weird.meta[CODE], service.count(path)) == ("key_invalid", 0)


def test_without_the_switch_there_is_no_such_address(served: Served) -> None:
    assert served.call("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 404


def test_a_variable_or_the_file_switches_it_on_as_well() -> None:
    """A switch that was not given on the command line says nothing."""
    assert not load_settings({"mcp": None}, {}).mcp
    assert load_settings({"mcp": None}, {"ONCEWARD_SERVE_MCP": "true"}).mcp
    assert not load_settings({"mcp": None}, {"ONCEWARD_SERVE_MCP": "false"}).mcp
