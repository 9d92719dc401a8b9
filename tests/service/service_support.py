"""Starting the service, and calling it as a stranger would: over a socket, with nothing of ours in between."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from onceward.service.access import Access
from onceward.service.settings import Settings, store_url_of
from servers import postgres
from servers.tenants import prepared

_numbers = itertools.count(1)
TABLE = "CREATE TABLE events (id TEXT PRIMARY KEY, name TEXT NOT NULL)"
INSERT = "INSERT INTO events VALUES (?, ?)"
PEPPER = {"ONCEWARD_PEPPER": "a pepper of more than thirty-two characters"}
SQLITE, POSTGRES = "sqlite", "postgres"
ON_BOTH = pytest.mark.parametrize(
    "served",
    [
        SQLITE,
        pytest.param(POSTGRES, marks=pytest.mark.skipif(not postgres.wanted(), reason="STORES leaves postgres out")),
    ],
    indirect=True,
)
"""For tests of a service that runs tenants' SQL: in SQLite files, and in schemas of a PostgreSQL server."""


@dataclass
class Heard:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.document["code"])


class PublishedLists(NamedTuple):
    """The refusals that a service publishes, by endpoint."""

    anywhere: list[dict[str, Any]]
    endpoints: list[tuple[str, re.Pattern[str], list[dict[str, Any]]]]
    operations: list[tuple[str, re.Pattern[str], set[tuple[int, str]]]]

    def at(self, method: str, path: str) -> list[dict[str, Any]]:
        """What may be refused at an address, as the contract says."""
        found = [some for known, pattern, some in self.endpoints if known == method and pattern.fullmatch(path)]
        return [*self.anywhere, *(one for some in found for one in some)]

    def has(self, method: str, path: str, said: dict[str, Any]) -> bool:
        """Whether this is published, both in the contract and in the OpenAPI document."""
        path, method = path.partition("?")[0], "GET" if method == "HEAD" else method
        if not any(one.items() >= said.items() for one in self.at(method, path)):
            return False
        described = [some for known, pattern, some in self.operations if known == method and pattern.fullmatch(path)]
        return not described or any((said["status"], said["code"]) in some for some in described)


def published_lists(contract: dict[str, Any], openapi: dict[str, Any]) -> PublishedLists:
    """The lists of a contract, and of an OpenAPI document."""
    endpoints, operations = [], []
    for app in contract["apps"]:
        for one in app["endpoints"]:
            method, _, path = one.partition(" ")
            endpoints.append((method, _path_pattern(path), app["refusals"]))
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            codes = {
                (int(status), code)
                for status, response in operation["responses"].items()
                for kind, content in response["content"].items()
                if kind == "application/problem+json"
                for code in content["schema"]["allOf"][1]["properties"]["code"]["enum"]
            }
            operations.append((method.upper(), _path_pattern(path), codes))
    return PublishedLists(contract["refusals"], endpoints, operations)


def _path_pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{\w+\}", "[^/]*", path))


@dataclass
class Served:
    """A service in a process of its own."""

    folder: Path
    flags: tuple[str, ...]
    process: subprocess.Popen[bytes]
    address: str
    token: str
    environment: Mapping[str, str] = field(default_factory=dict)
    _lists: PublishedLists | None = None

    @classmethod
    def started(
        cls,
        folder: Path,
        *flags: str,
        program: Sequence[str] = ("-m", "onceward"),
        before: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
        **environment: str,
    ) -> Served:
        """
        Start one, and wait until it listens.

        `program` is what to run in place of the command itself; `before`, a command that starts it.
        """
        ours = [sys.executable, *program, "serve", "--json", "--port", "0", "--folder", str(folder)]
        command = [*before, *ours, "--first-token", "stdout", *flags]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment},
                cwd=folder,
                pass_fds=pass_fds,
            )
        told = b""
        if process.stdout is None:
            raise RuntimeError("there is no stdout")
        while b"}" not in told:
            piece = process.stdout.read1(4096)
            if not piece:
                process.wait(30)
                process.stdout.close()
                raise RuntimeError(f"the service did not start: {(folder / 'log').read_text()[-2000:]}")
            told += piece
        document = json.loads(told)
        return cls(folder, flags, process, document["address"], document["token"] or "", environment)

    @classmethod
    def on_postgres(cls, folder: Path, *flags: str, **options: Any) -> Served:
        """One that keeps everything in PostgreSQL. Its folder has its log, and nothing else."""
        return cls.started(folder, "--sql", prepared(), *flags, **{**PEPPER, **options})

    @classmethod
    def limited(cls, folder: Path, limits: Mapping[str, float], *flags: str) -> Served:
        """One whose tenants' SQL has other limits than the usual ones."""
        script = Path(__file__).with_name("limited_service.py")
        return cls.started(folder, *flags, program=(str(script), json.dumps(limits)))

    def again(self) -> Served:
        """The same service, started once more on the same folder."""
        again = Served.started(self.folder, *self.flags, **self.environment)
        again.token = self.token
        return again

    def stop(self) -> int:
        """Ask it to end, and wait."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def store_url(self) -> str:
        """Where its records and tokens are."""
        given = dict(itertools.pairwise(self.flags))
        named = {name: given.get(f"--{name}", "") for name in ("store", "sql")}
        return store_url_of(Settings(folder=str(self.folder), **named))

    @property
    def is_on_postgres(self) -> bool:
        """Whether tenants' databases are schemas of a PostgreSQL server."""
        return "--sql" in self.flags

    def access(self) -> Access:
        """What operators use: the tokens and tenants of this service."""
        with patch.dict(os.environ, self.environment):  # With the key that its tokens are kept under.
            return Access.open(self.store_url)

    def call(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Heard:
        """One call. `token=""` sends none; `raw` sends these bytes."""
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        body = raw if raw is not None else json.dumps(document).encode() if document is not None else None
        sent = {} if token == "" else {"Authorization": f"Bearer {self.token if token is None else token}"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            heard = {name.lower(): value for name, value in response.getheaders()}
            answer = Heard(response.status, heard, response.read())
        finally:
            connection.close()
        self.check_is_published(method, path, answer)
        return answer

    def check_is_published(self, method: str, path: str, heard: Heard) -> None:
        """Whatever a test does: what it is refused with is on the list that the service publishes for that address."""
        if heard.headers.get("content-type") != "application/problem+json" or not heard.body:
            return
        document = heard.document
        said = {name: document[name] for name in ("code", "status", "retry", "kind") if name in document}
        if self._lists is None:
            documents = [
                self.call("GET", one, token="").document for one in ("/.well-known/idempotency", "/openapi.json")
            ]
            self._lists = published_lists(*documents)
        if not self._lists.has(method, path, said) or heard.status != document["status"]:
            raise AssertionError(f"{method} {path} answered {heard.status} {said}, which it does not publish")

    def contract(self) -> dict[str, Any]:
        """What it publishes about itself."""
        document: dict[str, Any] = self.call("GET", "/.well-known/idempotency", token="").document
        return document

    def app_contract(self, name: str) -> dict[str, Any]:
        """What one of its apps publishes."""
        [found] = [one for one in self.contract()["apps"] if one["name"] == name]
        return dict(found)

    def sql_contract(self) -> dict[str, Any]:
        """What it publishes about keys of SQL."""
        return dict(self.app_contract("SQL")["keys"])

    def database(self, tenant: str = "demo", table: str = TABLE) -> str:
        """A new database with a table; its path."""
        path = f"/v1/db/{tenant}/d{next(_numbers)}"
        if self.call("PUT", path).status != 201:
            raise RuntimeError("the database was not made")
        if table:
            self.query(path, table)
        return path

    def query(self, path: str, sql: str, params: Any = None, *, key: str | None = None, **more: Any) -> Heard:
        """One statement."""
        headers = {**more.pop("headers", {}), **({"Idempotency-Key": key} if key is not None else {})}
        return self.call("POST", f"{path}/query", {"sql": sql, "params": params}, headers=headers, **more)

    def count(self, path: str, table: str = "events") -> int:
        """How many rows a table has."""
        return int(self.query(path, f"SELECT count(*) FROM {table}").document["rows"][0][0])

    def new_token(self, tenant: str = "demo", **options: Any) -> str:
        """A token, made as an operator would."""
        with self.access() as access:
            access.create_tenant(tenant)
            made = access.create_token(tenant, **{"environment": "test", "role": "write", **options})
        if made is None:
            raise RuntimeError("no such tenant")
        return made.issued.text


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    texts = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(number) for text in texts for number in text.split()]
