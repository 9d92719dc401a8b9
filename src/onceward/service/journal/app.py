"""
`GET /v1/journal`: calls and how they ended, for admin tokens of a tenant.
"""

from __future__ import annotations

import msgspec
from starlette.applications import Starlette

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.journal import AsyncJournal, CallOutcome, CallView
from onceward.journal.views import CallFilter
from onceward.service.access import Role
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointResponse, Parameter, build_application
from onceward.service.web.problems import RequestMalformed
from onceward.service.web.service_contract import AppContract

GROUP = "Journal"
PAGE_MAX = 100
_HEX = frozenset("0123456789abcdef")


class AttemptResponse(msgspec.Struct, rename="camel"):
    """One attempt at a call."""

    id: str
    scope: str
    token: str
    """The id of the token, never the secret."""
    call: str
    run: str | None
    digest: str | None
    """Of the key, as the logs show it."""
    outcome: str | None
    """null: under way, or the service was killed meanwhile."""
    detail: str | None
    started_at: str
    finished_at: str | None


class AttemptsResponse(msgspec.Struct, rename="camel"):
    """One page of attempts, the latest first."""

    attempts: list[AttemptResponse]
    after: str | None
    """Where the next page begins; null at the end."""


class JournalApp:
    """The endpoint over one journal."""

    def __init__(self, journal: AsyncJournal, authenticator: Authenticator) -> None:
        self._journal = journal
        self._authenticator = authenticator

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        query = (
            Parameter("digest", "only attempts for this key", {"type": "string", "pattern": "^[0-9a-f]{12}$"}),
            Parameter("outcome", "only attempts with this outcome", {"enum": [*map(str, CallOutcome), "none"]}),
            Parameter("after", "where to start: what the previous page ended with", {"type": "string"}),
            Parameter("limit", "attempts per page", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
        )
        return [
            ApiEndpoint(
                "GET",
                "/v1/journal",
                self.listed,
                "Show what was attempted, and how it ended.",
                AttemptsResponse,
                role=Role.ADMIN,
                parameters=query,
            )
        ]

    def contract(self) -> AppContract:
        """What is published about it."""
        return AppContract(GROUP, self.endpoints(), limits={"pageEntriesMax": PAGE_MAX})

    def app(self) -> Starlette:
        """The application, to be mounted anywhere."""
        return build_application(self.endpoints(), self._authenticator)

    async def listed(self, call: ApiCall) -> EndpointResponse:
        """One page, of this tenant in this environment."""
        outcome, limit = call.query("outcome"), call.limit(PAGE_MAX)
        if outcome is not None and outcome not in (*CallOutcome, "none"):
            raise RequestMalformed(
                f"outcome must be one of {', '.join(CallOutcome)}, or none for those that have not ended"
            )
        criteria = CallFilter(
            within=f"{call.caller.environment}:{call.caller.tenant}",
            digest=_hex(call.query("digest"), "digest", 12),
            outcome=None if outcome == "none" else outcome,
            unended=outcome == "none",
            after=_hex(call.query("after"), "after", 24),
            limit=limit,
        )
        try:
            found = await self._journal.find(criteria)
        except ConfigurationError as error:
            raise StoreUnavailable(f"the journal cannot be read: {error}") from error
        following = found[-1].id if len(found) == limit else None
        return EndpointResponse(AttemptsResponse([_shown(one) for one in found], following))


def _hex(text: str | None, name: str, length: int) -> str | None:
    if text is not None and (len(text) != length or not set(text) <= _HEX):
        raise RequestMalformed(f"{name} is not valid: it has {length} hexadecimal digits, as the journal shows them")
    return text


def _shown(one: CallView) -> AttemptResponse:
    return AttemptResponse(
        id=one.id,
        scope=one.scope,
        token=one.worker,
        call=one.tool,
        run=one.run,
        digest=one.digest,
        outcome=one.outcome,
        detail=one.detail,
        started_at=one.started_at.isoformat(),
        finished_at=None if one.finished_at is None else one.finished_at.isoformat(),
    )
