"""
The service's responses and the client's results name the same members.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest

from onceward.client import BatchResult, BookedBatch, BookedItem, Checkpoint, Delta, Derived, Gaps, NewDelta, Receipt
from onceward.client import Result as QueryResult
from onceward.protocol import errors
from onceward.service.app import contract_of_service
from onceward.service.ledger import wire
from onceward.service.settings import Settings
from onceward.service.sql.app import BatchResponse, QueryResponse
from onceward.service.web.service_contract import all_refusals

HEADERS = {"usage", "replayed", "advice"}
"""What the client reads from headers, and not from the body."""


@pytest.mark.parametrize(
    ("struct", "result", "only_sent", "only_read"),
    [
        (wire.DeltaRequest, NewDelta, (), ()),
        (wire.DeltaResponse, Delta, (), ()),
        (wire.DeltaBatchItem, BookedItem, ("index", "code", "detail"), ("error",)),
        (wire.DeltaBatchResponse, BookedBatch, (), ()),
        (wire.CheckpointResponse, Checkpoint, (), ()),
        (wire.BalanceResponse, Derived, (), ()),
        (wire.ReceiptResponse, Receipt, (), ()),
        (wire.GapsResponse, Gaps, (), ()),
        (QueryResponse, QueryResult, (), ()),
        (BatchResponse, BatchResult, ("meta",), ()),
    ],
)
def test_both_sides_name_the_same_members(
    struct: type[msgspec.Struct], result: Any, only_sent: tuple[str, ...], only_read: tuple[str, ...]
) -> None:
    """
    A member that is added on one side only is noticed here; what differs on purpose is in the table.
    """
    sent = {one.name for one in msgspec.structs.fields(struct)} - set(only_sent)
    read = {"customer_id" if one.name == "customer" else one.name for one in fields(result)} - HEADERS

    assert read - set(only_read) == sent


def test_every_shared_error_has_a_page_of_the_service() -> None:
    """
    What the client can raise, the service explains: each shared error is one of its refusals.
    """
    shared = {one for one in vars(errors).values() if isinstance(one, type) and one.__module__ == errors.__name__}
    shared -= {errors.SqlKind}

    published = {one["code"] for one in all_refusals(contract_of_service(Settings()))}
    assert {one.code for one in shared} - published == set()
    assert len(shared) > 10
