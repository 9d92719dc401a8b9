"""
Sources stored as rows by `onceward hooks add`, for a service that has none in code.

A row says where its secrets are (`env:NAME`, `file:/path`), never what they are. The process that needs them reads them
again every second, so that a file can be replaced under a running service.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from onceward._core.errors import ConfigurationError
from onceward.messaging.inbox.event_numbers import range_text
from onceward.messaging.inbox.handlers import check_handler_path
from onceward.messaging.inbox.source import (
    Source,
    check_number_place,
    check_source_name,
    warn_of_short_secret,
)
from onceward.messaging.webhooks import GitHub, PacSpace, PlainHmac, Scheme, Secret, StandardWebhooks, Stripe
from onceward.messaging.webhooks.signature_schemes import secret_for_scheme
from onceward.runtime.environment import Environment
from onceward.stores.tables.sql_steps import Flow, Row, Sql, SqlSteps, one_or_none, read_tables

SCHEMES: dict[str, type[Any]] = {
    "standard": StandardWebhooks,
    "stripe": Stripe,
    "github": GitHub,
    "pacspace": PacSpace,
    "hmac": PlainHmac,
}
REFRESH_SECONDS = 1.0
"""How long the rows are used without reading them again: a new source is known within a second."""
SECRET_FILE_BYTES_MAX = 4_096
GAPS_SHOWN = 5

log = logging.getLogger("onceward.inbox")

_ENV = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_ALL = """SELECT name, scope, scheme, secrets, handler, number_at, attempts, keep, trust_unsigned_id
    FROM onceward_inbox_sources ORDER BY name"""
_ONE = """SELECT name, scope, scheme, secrets, handler, number_at, attempts, keep, trust_unsigned_id
    FROM onceward_inbox_sources WHERE name = :name"""
_REMOVE = "DELETE FROM onceward_inbox_sources WHERE name = :name RETURNING 1"
_PUT = """INSERT INTO onceward_inbox_sources
    (name, scope, scheme, secrets, handler, number_at, attempts, keep, trust_unsigned_id, added_at)
    VALUES (:name, :scope, :scheme, :secrets, :handler, :number_at, :attempts, :keep, :trust_unsigned_id, :now)"""
_COUNTS = """SELECT scope, source, count(*), sum(CASE WHEN state = 'waiting' THEN 1 ELSE 0 END),
    sum(CASE WHEN state = 'dead' THEN 1 ELSE 0 END), sum(deliveries - 1), sum(altered), sum(renamed), max(received_at)
    FROM onceward_inbox_events GROUP BY scope, source ORDER BY scope, source"""
_MARKS = "SELECT scope, source, highest, rewinds FROM onceward_inbox_marks"
_GAPS = "SELECT scope, source, first, last FROM onceward_inbox_gaps ORDER BY first"


class StoredSource(NamedTuple):
    """A source as it is stored."""

    name: str
    scope: str
    scheme: Scheme
    secrets: tuple[str, ...]
    """Where they are: `env:NAME` or `file:/path`."""
    handler: str
    number_at: str | None
    attempts: int
    keep: float | None
    """Seconds; None: the scheme's default; 0: for ever."""
    trust_unsigned_id: bool = False

    def checked(self) -> StoredSource:
        """Return it if it can work; no secret is read and no handler imported."""
        check_source_name(self.name)
        check_handler_path(self.handler)
        if self.number_at is not None:
            check_number_place(self.number_at)
        if not self.secrets:
            raise ConfigurationError("a source needs a secret: --secret-env NAME, or --secret-file PATH")
        for reference in self.secrets:
            if not _ENV.fullmatch(reference) and not (
                reference.startswith("file:") and Path(reference[5:]).is_absolute()
            ):
                raise ConfigurationError(
                    "give the place of a secret, not the secret: env:NAME of an environment variable, or file: and an "
                    "absolute path"
                )
        if self.keep is not None and self.keep != 0 and not self.keep >= 1:
            raise ConfigurationError("keep must be at least a second; 0 keeps ids for ever")
        self.source(())
        return self

    def source(self, secrets: tuple[Secret, ...]) -> Source:
        """The source with its secrets."""
        keep = None if self.keep is None else "forever" if self.keep == 0 else self.keep
        return Source(
            self.name,
            self.scheme,
            secrets,
            self.handler,
            attempts=self.attempts,
            number_at=self.number_at,
            keep=keep,  # type: ignore[arg-type]
            scope=self.scope,
            trust_unsigned_id=self.trust_unsigned_id,
        )

    def opened(self) -> Source:
        """The source with those of its secrets that this process can read."""
        return self.source(tuple(found for one in self.secrets if (found := read_secret(one, self.scheme)) is not None))


class SourceView(NamedTuple):
    """A source and what came from it, for operators."""

    scope: str
    name: str
    stored: StoredSource | None
    events: int
    waiting: int
    dead: int
    repeats: int
    """Deliveries of events that were here already."""
    altered: int
    renamed: int
    """Deliveries of a signed message under another id than its first."""
    last_at: int | None
    highest: int | None
    rewinds: int
    missing: tuple[str, ...]
    """Ranges of numbers that did not come."""


class StoredSources:
    """The stored sources, as this process last saw them."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._seen: dict[str, Source] = {}
        self._warned_of: set[str] = set()
        self._until = -1.0

    def sources(self) -> Flow[dict[str, Source]]:
        """Every source by its name."""
        now = self._environment.monotonic()
        if now >= self._until:
            found = yield from read_tables(all_sources)
            self._seen = {one.name: one.opened() for one in found}
            for name in {one.name for one in self._seen.values() if one.has_short_secret} - self._warned_of:
                self._warned_of.add(name)
                warn_of_short_secret(name)
            self._until = now + REFRESH_SECONDS
        return self._seen


def read_secret(reference: str, scheme: Scheme) -> Secret | None:
    """A secret from where it is; None, and a line in the log, if it is not there."""
    kind, _, place = reference.partition(":")
    try:
        if kind == "env":
            text = os.environ.get(place)
        else:
            with Path(place).open("rb") as file:
                text = file.read(SECRET_FILE_BYTES_MAX).decode().strip()
        if not text:
            log.warning("the secret %s does not exist", reference)
            return None
        return secret_for_scheme(scheme, text)
    except ConfigurationError as error:  # Says what a secret looks like, and nothing of this one.
        log.warning("the secret %s cannot be used: %s", reference, error)
        return None
    except (OSError, UnicodeDecodeError) as error:
        log.warning("the secret %s cannot be read: %s", reference, type(error).__name__)
        return None


def put_source(source: StoredSource) -> SqlSteps[bool]:
    """Write a source, in place of one of the same name; whether there was none."""
    there = yield Sql(_REMOVE, {"name": source.name})
    kind = next(name for name, one in SCHEMES.items() if type(source.scheme) is one)
    yield Sql(
        _PUT,
        {
            **source._asdict(),
            "scheme": json.dumps({"scheme": kind, **asdict(source.scheme)}),  # type: ignore[call-overload]
            "secrets": json.dumps(source.secrets),
            "keep": None if source.keep is None else round(source.keep),
            "trust_unsigned_id": int(source.trust_unsigned_id),
        },
    )
    return not there


def get_source(name: str) -> SqlSteps[StoredSource | None]:
    """One source."""
    row = one_or_none((yield Sql(_ONE, {"name": name})))
    return None if row is None else _stored(row)


def all_sources() -> SqlSteps[list[StoredSource]]:
    """All of them."""
    return [_stored(row) for row in (yield Sql(_ALL, {}))]


def source_views() -> SqlSteps[list[SourceView]]:
    """Sources with their counts: those that were written, and those that only have events."""
    known = {(one.scope, one.name): one for one in (yield from all_sources())}
    counts = {(row[0], row[1]): row[2:] for row in (yield Sql(_COUNTS, {}))}
    marks = {(row[0], row[1]): row[2:] for row in (yield Sql(_MARKS, {}))}
    gaps: dict[tuple[str, str], list[str]] = {}
    for scope, name, first, last in (yield Sql(_GAPS, {})):
        gaps.setdefault((scope, name), []).append(range_text(first, last))
    found = []
    for place in sorted({*known, *counts}):
        total, waiting, dead, repeats, altered, renamed, last_at = counts.get(place, (0, 0, 0, 0, 0, 0, None))
        highest, rewinds = marks.get(place, (None, 0))
        found.append(
            SourceView(
                scope=place[0],
                name=place[1],
                stored=known.get(place),
                events=int(total),
                waiting=int(waiting),
                dead=int(dead),
                repeats=int(repeats),
                altered=int(altered),
                renamed=int(renamed),
                last_at=last_at,
                highest=highest,
                rewinds=rewinds,
                missing=tuple(gaps.get(place, ())),
            )
        )
    return found


def _stored(row: Row) -> StoredSource:
    name, scope, scheme, secrets, handler, number_at, attempts, keep, trusted = row
    document = json.loads(scheme)
    kind = SCHEMES.get(document.pop("scheme"))
    if kind is None:
        raise ConfigurationError(f"the source {name} has a scheme that this Onceward does not know: upgrade it")
    return StoredSource(
        name=name,
        scope=scope,
        scheme=kind(**document),
        secrets=tuple(json.loads(secrets)),
        handler=handler,
        number_at=number_at,
        attempts=attempts,
        keep=keep,
        trust_unsigned_id=bool(trusted),
    )
