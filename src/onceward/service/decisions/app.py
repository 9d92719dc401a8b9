"""
`GET /v1/decisions`: who released, reconciled or changed what, for admin tokens of a tenant.

A tenant sees the decisions about itself. Whoever runs the service is "operator" to it, without name, machine or reason;
its own tokens are shown by their ids. Decisions are named by their hashes, because numbers would count everybody's.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from starlette.applications import Starlette

from onceward._core.operation import to_datetime
from onceward.audit import API, DecisionFilter, DecisionLog, DecisionView
from onceward.service.access import Role
from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, EndpointResponse, Parameter, build_application
from onceward.service.web.problems import RequestMalformed
from onceward.service.web.service_contract import AppContract

GROUP = "Decisions"
PAGE_MAX = 100
OPERATOR = "operator"
_TOLD = ("record", "letter", "token", "tenant")
"""Groups of actions whose before and after are the tenant's own; of a source they name what the operator runs."""

_ID = re.compile(r"dc_[0-9a-f]{32}")
_ACTION = re.compile(r"[a-z]{1,40}(\.[a-z]{1,40})?")


class DecisionResponse(msgspec.Struct, rename="camel"):
    """One decision."""

    id: str
    at: str
    actor: str
    """`token` and its id, or `operator`: whoever runs the service."""
    via: str
    action: str
    subject: str | None
    environment: str | None
    reason: str | None
    before: dict[str, Any] | None
    outcome: str | None
    """`done`, `failed` or `unknown`; null: it is not known whether it was carried out."""
    after: dict[str, Any] | None
    error: str | None


class DecisionsResponse(msgspec.Struct, rename="camel"):
    """One page of decisions, the latest first."""

    decisions: list[DecisionResponse]
    after: str | None
    """Where the next page begins; null at the end."""


class DecisionsApp:
    """The endpoint over one decision log, which is asked in threads: operators are few."""

    def __init__(self, log: DecisionLog, authenticator: Authenticator) -> None:
        self._log = log
        self._authenticator = authenticator

    def endpoints(self) -> list[ApiEndpoint]:
        """The table."""
        query = (
            Parameter("action", "only this action, or this group of actions, such as record", {"type": "string"}),
            Parameter("after", "where to start: what the previous page ended with", {"type": "string"}),
            Parameter("limit", "decisions per page", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}),
        )
        return [
            ApiEndpoint(
                "GET",
                "/v1/decisions",
                self.listed,
                "Show what operators decided.",
                DecisionsResponse,
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
        action, after, limit = call.query("action"), call.query("after"), call.limit(PAGE_MAX)
        if action is not None and not _ACTION.fullmatch(action):
            raise RequestMalformed("action is not valid: send one as it appears in decisions, such as record.release")
        found = await asyncio.to_thread(self._page, call.caller.tenant, call.caller.environment, action, after, limit)
        following = found[-1].id if len(found) == limit else None
        return EndpointResponse(DecisionsResponse([_shown(one) for one in found], following))

    def _page(
        self, tenant: str, environment: str, action: str | None, after: str | None, limit: int
    ) -> list[DecisionView]:
        before = None
        if after is not None:
            before = self._log.number_of(tenant, after) if _ID.fullmatch(after) else None
            if before is None:
                raise RequestMalformed("after is not valid: send the id that the previous page ended with")
        return self._log.find(
            DecisionFilter(action=action, tenant=tenant, environment=environment, before=before, limit=limit)
        )


def _shown(one: DecisionView) -> DecisionResponse:
    is_own = one.via == API
    is_told = one.action.partition(".")[0] in _TOLD
    return DecisionResponse(
        id=one.id,
        at=to_datetime(one.at).isoformat(),
        actor=one.actor if is_own and one.actor is not None else OPERATOR,
        via=one.via,
        action=one.action,
        subject=one.subject,
        environment=one.environment,
        reason=one.reason if is_own else None,
        before=one.before if is_told else None,
        outcome=one.outcome,
        after=one.after if is_told else None,
        error=one.error,
    )
