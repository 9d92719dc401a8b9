"""The tenants of the scenario: made as an operator would, each with an address of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import NamedTuple

from onceward.service.access import Access, Role
from onceward.service.settings import Settings, store_url_of
from soak.neighbours.wire import Wire

HONEST = 2
NEIGHBOURS = 8
DATABASES = 8
"""Of an attacker: lines that are fair between databases give it as many places."""
TABLE = "CREATE TABLE effects (operation TEXT NOT NULL, number INTEGER NOT NULL)"
"""No constraint: a second row would be taken."""
INDEX = "CREATE INDEX effects_by_operation ON effects (operation)"


class Tenant(NamedTuple):
    """Somebody who calls the service."""

    name: str
    source: str
    """The address that it calls from: nobody shares one in the scenario, as strangers do not."""
    read: str
    write: str
    admin: str
    """Its tokens."""
    databases: tuple[str, ...]

    def query(self, number: int = 0) -> str:
        """The path of a database's statements."""
        return f"/v1/db/{self.name}/{self.databases[number % len(self.databases)]}/query"


def is_attacker(name: str) -> bool:
    """By its name."""
    return name.startswith("attacker-")


def is_neighbour(name: str) -> bool:
    """By its name."""
    return name.startswith("neighbour")


def cast_of(folder: Path, attacks: tuple[str, ...]) -> dict[str, list[Tenant]]:
    """Everybody: `honest` are measured, `neighbours` and `attackers` are beside them, in turn."""
    names = {
        "honest": [f"honest{number}" for number in range(HONEST)],
        "neighbours": [f"neighbour{number}" for number in range(NEIGHBOURS)],
        "attackers": [f"attacker-{name}" for name in attacks],
    }
    with Access.open(store_url_of(Settings(folder=str(folder)))) as access:
        return {
            group: [_made(access, name, f"127.0.{third}.{number}") for number, name in enumerate(some, start=1)]
            for third, (group, some) in enumerate(names.items(), start=1)
        }


def _made(access: Access, name: str, source: str) -> Tenant:
    access.create_tenant(name)
    read, write, admin = (_token(access, name, role) for role in (Role.READ, Role.WRITE, Role.ADMIN))
    many = DATABASES if is_attacker(name) else 1
    return Tenant(name, source, read, write, admin, tuple(f"d{number}" for number in range(many)))


def _token(access: Access, tenant: str, role: Role) -> str:
    made = access.create_token(tenant, environment="test", role=role)
    if made is None:
        raise RuntimeError(f"no tenant {tenant}")
    return made.issued.text


async def furnish(port: int, tenants: list[Tenant]) -> None:
    """Make everybody's databases, with a table in each; each tenant its own, one after the other."""
    await asyncio.gather(*(_furnish_one(port, tenant) for tenant in tenants))


async def _furnish_one(port: int, tenant: Tenant) -> None:
    wire = Wire(port, tenant.source)
    for number, database in enumerate(tenant.databases):
        made = await wire.ask("PUT", f"/v1/db/{tenant.name}/{database}", tenant.admin)
        for sql in (TABLE, INDEX):
            done = await wire.ask("POST", tenant.query(number), tenant.write, json.dumps({"sql": sql}).encode())
            if made.status != 201 or done.status != 200:
                raise RuntimeError(f"no database for {tenant.name}: {made.status}, {done.status} {done.body!r}")
    wire.close()
