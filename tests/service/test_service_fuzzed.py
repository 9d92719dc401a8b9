"""Every route of the service, fuzzed from its own description: no 500, no answer that is not described."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from service_support import SQLITE, Served

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
OPERATIONS = ["query", "batch", "tables", "databases", "create", "drop", "listed", "shown", "reconciled", "released"]
OPERATIONS += ["emitted", "emitted_many", "closed", "derived", "receipted", "looked_up", "gaps_found"]
OPERATIONS += ["received", "usage"]


@pytest.fixture(scope="module")
def description(services: Callable[[str], Served]) -> schemathesis.BaseSchema:
    """The service's own OpenAPI document."""
    return schemathesis.openapi.from_url(f"{services(SQLITE).address}/openapi.json")


CASES = [
    (name, mode)
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for name in OPERATIONS
    # A webhook's body is anything: nothing about it is wrong but its signature, which none of these has.
    if (name, mode) != ("received", schemathesis.GenerationMode.NEGATIVE)
]


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.dose(1, of="mode")
def test_whatever_is_sent_the_answer_is_one_that_is_described(
    served: Served, description: schemathesis.BaseSchema, name: str, mode: schemathesis.GenerationMode
) -> None:
    """
    Bodies, paths, parameters and headers of every shape, right and wrong, with a token that may do everything.
    """
    seen, database = 0, served.database()

    @settings(
        max_examples=12,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(case=description.find_operation_by_id(name).as_strategy(generation_mode=mode))
    def fuzzed(case: schemathesis.Case) -> None:
        nonlocal seen
        seen += 1
        if name in ("query", "batch", "tables"):  # Names that are none are tried by the other two.
            case.path_parameters = dict(zip(("namespace", "database"), database.split("/")[3:], strict=True))
        elif name in ("create", "drop"):
            case.path_parameters = {**(case.path_parameters or {}), "namespace": "demo"}
        response = case.call(headers={"Authorization": f"Bearer {served.token}"}, timeout=30)
        case.validate_response(response, checks=CHECKS)

    fuzzed()

    assert seen > 0


def test_every_route_is_among_them(description: schemathesis.BaseSchema) -> None:
    """
    A new route is fuzzed, or this fails.
    """
    found = [one.ok() for one in description.get_all_operations()]

    assert {one.definition.raw["operationId"] for one in found} == set(OPERATIONS)
