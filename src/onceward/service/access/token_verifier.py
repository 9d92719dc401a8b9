"""
Whose token it is, what it may do, and the scope of its keys.

`TokenVerifier` checks tokens. It remembers valid ones for half a second, so that a burst of calls asks the
database once; a token that is revoked is therefore refused by every process within half a second of the revocation,
and by
the process that revoked it at once.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from onceward._core.errors import ConfigurationError, Forbidden, RateLimitError, StoreUnavailable, TokenInvalid
from onceward.protocol.token_format import PresentedToken, parse_token
from onceward.runtime.environment import Environment
from onceward.service.access import token_table
from onceward.service.access.flood_control import FloodControl
from onceward.service.access.peppers import Peppers
from onceward.service.access.scopes import scope_of
from onceward.service.access.token_table import PURPOSE, TOUCH_US, Role, StoredToken, databases_of
from onceward.stores.tables.sql_steps import Flow, read_tables, transact

REMEMBERED_SECONDS = 0.5
"""How long a valid token is accepted without a look at the database, and so how late a revocation is seen."""
REMEMBERED_MAX = 10_000
"""Tokens, of a few hundred bytes each."""
SCOPES_BY = ("tenant", "token")

_DECOY = StoredToken(
    now=0,
    id="",
    family="",
    tenant="",
    environment="",
    role="",
    databases=None,
    pepper="",
    digest=bytes(32),
    last_used_at=None,
    expires_at=None,
    revoked_at=None,
    erasing_at=None,
    prepaid=False,
)
_RANK: dict[str, int] = {role: rank for rank, role in enumerate(Role, 1)}


class Caller(NamedTuple):
    """Whoever holds a valid token."""

    token: str
    """The token's id: for logs and records. Never the secret."""
    family: str
    """The id of the first token of its line: a rotation keeps it."""
    tenant: str
    environment: str
    role: Role
    databases: tuple[str, ...] | None
    """None: all of the tenant's."""
    prepaid: bool
    """Whether calls are charged to a balance."""
    scope_by: str

    @property
    def scope(self) -> str:
        """Where this caller's keys are."""
        return self.scope_for(None)

    def scope_for(self, database: str | None) -> str:
        """Where this caller's keys are in a database."""
        family = self.family if self.scope_by == "token" else None
        return scope_of(self.environment, self.tenant, family=family, database=database)

    def require(
        self,
        *,
        role: Role | str = Role.READ,
        environment: str | None = None,
        tenant: str | None = None,
        database: str | None = None,
        whole_tenant: bool = False,
    ) -> None:
        """
        Refuse what this caller may not do. Asked before anything is looked up, so it tells nothing about what is there.

        `environment`, `tenant` and `database` are those of the resource; `whole_tenant` is for what belongs to no one
        database, where a token that has a list of databases has no business.
        """
        if environment is not None and environment != self.environment:
            raise Forbidden(
                f"this is a {self.environment} token, and the resource is {environment}; use a token for {environment}"
            )
        if tenant is not None and tenant != self.tenant:
            raise Forbidden("this token belongs to another tenant")
        if database is not None and self.databases is not None and database not in self.databases:
            raise Forbidden("this token may not use this database; use one that may")
        if whole_tenant and self.databases is not None:
            raise Forbidden(
                f"this token is only for the databases {', '.join(self.databases)[:200]}, and this concerns "
                "the whole tenant; use a token without a list of databases"
            )
        if (_RANK.get(role) or _RANK[Role(role)]) > _RANK[self.role]:
            raise Forbidden(f"this needs a token with the role {Role(role)}, and this one has {self.role}")


def _hash(authorization: str) -> bytes:
    return sha256(authorization.encode("utf-8", "surrogatepass")).digest()


def check_scope_by(scope_by: str) -> str:
    """Give the choice back if it is one."""
    if scope_by in SCOPES_BY:
        return scope_by
    raise ConfigurationError(f"scope_by is one of {', '.join(SCOPES_BY)}, not {scope_by!r}")


class _Remembered(NamedTuple):
    row: StoredToken
    asked_at: float


class TokenVerifier:
    """Checks tokens, and remembers valid ones for a moment. For one process; safe for threads."""

    def __init__(self, peppers: Peppers, environment: Environment, scope_by: str = "tenant") -> None:
        self.peppers = peppers
        self._environment = environment
        self._scope_by = scope_by
        self._memory: OrderedDict[str, _Remembered] = OrderedDict()
        self._presented: dict[bytes, tuple[_Remembered, Caller]] = {}
        """Whole headers that were judged just now, by their hash: whose they are, by which row."""

    def monotonic(self) -> float:
        """This process's clock."""
        return self._environment.monotonic()

    def recall(self, id: str) -> _Remembered | None:
        """What is remembered of a token, if that is fresh."""
        found = self._memory.get(id)
        return found if found is not None and self.monotonic() < found.asked_at + REMEMBERED_SECONDS else None

    def remember(self, row: StoredToken, asked_at: float) -> None:
        """Keep a valid token's row, as of when it was read: a later revocation is not in it."""
        self._memory.pop(row.id, None)
        self._memory[row.id] = _Remembered(row, asked_at)
        if len(self._memory) > REMEMBERED_MAX:
            try:
                self._memory.popitem(last=False)
            except KeyError:  # Other threads were faster.
                return

    def note_presented(self, authorization: str, caller: Caller) -> None:
        """This very header was judged to be this caller's."""
        known = self._memory.get(caller.token)
        # By this row, and not by one that was read again meanwhile.
        if known is not None and self._caller(known.row) == caller:
            if len(self._presented) >= REMEMBERED_MAX:
                self._presented.clear()
            self._presented[_hash(authorization)] = known, caller

    def presented_again(self, authorization: list[str]) -> Caller | None:
        """
        The caller, if this very header was judged just now, by a row that is still remembered; None: judge it.

        A hash of the whole header is looked up: who does not know a token does not find it by the time that takes.
        """
        found = self._presented.get(_hash(authorization[0])) if len(authorization) == 1 else None
        if found is None:
            return None
        known, caller = found
        age = self.monotonic() - known.asked_at
        if self._memory.get(caller.token) is not known or age >= REMEMBERED_SECONDS:
            return None
        ends = known.row.expires_at
        return caller if ends is None or known.row.now + round(age * 1_000_000) < ends else None

    def forget(self, id: str) -> None:
        """Ask again next time."""
        self._memory.pop(id, None)

    def forget_all(self) -> None:
        """Ask again about everybody."""
        self._memory.clear()

    def judge(self, presented: PresentedToken, found: StoredToken | None, age: float) -> Caller:
        """
        The caller, or `TokenInvalid` with the same words whatever is wrong.

        An unknown token takes as long as a known one: a digest is computed and compared for it, too.
        """
        row = found if found is not None else _DECOY._replace(pepper=self.peppers.current)
        fits = self.peppers.fits(PURPOSE, presented.body, row.pepper, bytes(row.digest))
        now = row.now + round(age * 1_000_000)
        lives = row.revoked_at is None and row.erasing_at is None and (row.expires_at is None or now < row.expires_at)
        if not (fits and lives and found is not None and row.environment == presented.environment):
            raise TokenInvalid
        return self._caller(row)

    def _caller(self, row: StoredToken) -> Caller:
        return Caller(
            token=row.id,
            family=row.family,
            tenant=row.tenant,
            environment=row.environment,
            role=Role(row.role),
            databases=databases_of(row.databases),
            prepaid=bool(row.prepaid),
            scope_by=self._scope_by,
        )


def authenticate(verifier: TokenVerifier, text: str) -> Flow[Caller]:
    """Whose token it is."""
    presented = parse_token(text)
    known = verifier.recall(presented.id)
    if known is not None:
        return verifier.judge(presented, known.row, verifier.monotonic() - known.asked_at)
    asked_at = verifier.monotonic()
    row = yield from read_tables(partial(token_table.find, presented.id))
    caller = verifier.judge(presented, row, 0.0)
    if row is not None:
        verifier.remember(row, asked_at)
        if row.last_used_at is None or row.last_used_at <= row.now - TOUCH_US:
            try:
                yield from transact("access.touch", partial(token_table.touch, row.id))
            except StoreUnavailable:
                return caller  # A note that could not be made is no reason to turn a caller away.
    return caller


def authenticate_or_limit(
    verifier: TokenVerifier, flood: FloodControl, authorization: list[str], address: str
) -> Flow[Caller]:
    """
    The caller of a request; those without a valid token are limited by their address.

    In this order, so that a valid token is never slowed, whatever else comes from its address.
    """
    try:
        text = bearer_token(authorization)
        if text is None:
            raise TokenInvalid("the request has no token. Send the header `Authorization: Bearer TOKEN`")
        caller = yield from authenticate(verifier, text)
        verifier.note_presented(authorization[0], caller)
        return caller
    except TokenInvalid:
        wait = flood.retry_after(address)
        if wait is None:
            raise
    raise RateLimitError(
        f"too many calls without a valid token came from this address. Retry in {wait} s", retry_after_seconds=wait
    )


def bearer_token(values: list[str]) -> str | None:
    """
    The token in the values of `Authorization` (one for each time that it was sent); None if there is none.

    The scheme's case does not matter, and several blanks may follow it (RFC 9110, 11.1 and 11.4). Two values are
    refused: different readers might take different ones.
    """
    if not values:
        return None
    if len(values) > 1:
        raise TokenInvalid("the header Authorization was sent more than once; send one token")
    scheme, blank, credentials = values[0].partition(" ")
    if scheme.lower() != "bearer" or not blank:
        raise TokenInvalid("the header Authorization is not of the form `Bearer TOKEN`")
    return credentials.lstrip(" ").rstrip(" \t")
