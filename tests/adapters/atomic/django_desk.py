"""Django's connections behind the same handle; its settings are made here, once for the process."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import django
from desks import Caller, Desk
from django.conf import settings
from django.db import IntegrityError, connections, transaction

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    USE_TZ=True,
    ALLOWED_HOSTS=["testserver"],
    ROOT_URLCONF="django_desk",
    SECRET_KEY="tests only",
)
django.setup()

ALIASES = ("desk", "neighbour")
"""A thread has one connection to each: two callers in a test have two of them."""
urlpatterns: list[Any] = []
"""Tests put their views here."""


class DjangoDesk(Desk):
    """A gate and Django on one database."""

    def _set_up(self) -> None:
        self.violation = IntegrityError
        for alias in ALIASES:
            self.point_at(alias)
        self._taken = threading.local()

    def point_at(self, alias: str, **options: Any) -> None:
        """Let an alias lead to this database."""
        if self.kind.database == "sqlite":
            where: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.place.path)}
        else:
            at = self.place.url.rpartition("@")[2].replace("/", ":").split(":")
            where = {"ENGINE": "django.db.backends.postgresql", "USER": "postgres"}
            where |= dict(zip(("HOST", "PORT", "NAME"), at, strict=True))
        forget(alias)
        connections.settings[alias] = where | options
        connections.settings = connections.configure_settings(connections.settings)

    async def close(self) -> None:
        self.gate.close()
        for alias in ALIASES:
            forget(alias)

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[DjangoCaller]:
        number = getattr(self._taken, "number", 0)
        alias, self._taken.number = ALIASES[number], number + 1
        try:
            yield DjangoCaller(self, connections[alias])
        finally:
            self._taken.number = number
            connections[alias].close()
            del connections[alias]


class DjangoCaller(Caller):
    """A thread with its connection."""

    def in_transaction(self) -> bool:
        return bool(self.target.in_atomic_block)

    async def execute(self, sql: str) -> Any:
        with self.target.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else None

    @asynccontextmanager
    async def transaction(self, nested: bool = False) -> AsyncIterator[None]:
        with transaction.atomic(using=self.target.alias):
            yield

    async def end(self, how: str) -> None:
        self.target.connection.commit() if how == "commit" else self.target.connection.rollback()


def forget(alias: str) -> None:
    """Close what is open under an alias, and forget where it led."""
    if alias in connections.settings:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]
