"""
Everything that a ledger can do, as flows that `Ledger` and `AsyncLedger` run. Arguments are checked here first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec

from onceward._core.canonical import canonical
from onceward._core.errors import (
    KeyInvalid,
    KeyMissing,
    KeyReused,
    OncewardError,
    RequestInvalid,
    RetryTransaction,
    StoreContended,
)
from onceward._core.keys import environment_key
from onceward.protocol.amounts import parse_amount
from onceward.protocol.limits import BATCH_MAX, METADATA_BYTES_MAX, REASON_CHARACTERS_MAX, is_customer
from onceward.service.access import scope_of
from onceward.service.ledger import (
    checkpoints,
    ledger_entries,
    receipts_and_gaps,
    responses,
    verification,
    wire,
)
from onceward.service.ledger.hash_chain import LedgerEntry
from onceward.service.ledger.keyed_transaction import AGAIN_SECONDS, TRIES, KeyedResult, KeyedTransaction
from onceward.service.ledger.ledger_entries import BookingResult, CheckedDelta, LedgerTerms
from onceward.service.ledger.periods import check_period
from onceward.stores.tables import Flow, Sql, SqlSteps, read_tables, transact

_ID = re.compile(r"dl_[0-9a-f]{32}", re.ASCII)


class LedgerScope(NamedTuple):
    """Whose ledger, and where its keys are."""

    environment: str
    tenant: str
    keys: str
    """The scope of the caller's keys; with scope_by="token" it is narrower than the ledger's."""

    @property
    def scope(self) -> str:
        """Of the rows: environment and tenant, whoever calls. References and customers are theirs."""
        return scope_of(self.environment, self.tenant)

    @classmethod
    def of(cls, environment: str, tenant: str) -> LedgerScope:
        """The ledger of a tenant in an environment, with keys shared by all of its tokens."""
        return cls(environment, tenant, scope_of(environment, tenant))


class LedgerFlows:
    """The flows of one ledger."""

    def __init__(self, terms: LedgerTerms) -> None:
        self.terms = terms

    def emit(
        self, owner: LedgerScope, sent: wire.DeltaRequest, key: str | None = None, *, full: OncewardError | None = None
    ) -> Flow[KeyedResult]:
        """
        Book a delta once: by its key, or by its reference where there is no key.

        With `full` nothing new is booked: what is booked already is answered, and anything else gets this error.
        """
        checked = check_delta(owner, sent)
        if key is None and checked.reference is None:
            raise KeyMissing(
                "the delta has no key, and a retry would book it twice. Send the header Idempotency-Key, or a "
                "referenceId in the body; nothing was booked"
            )
        named = checked.reference if key is None else _key(owner, key)
        # A reference is good for ever: when the record of it has expired, the row still answers.
        after: Literal["run", "refuse"] = "run" if key is None else "refuse"
        steps = partial(_booked_text, owner.scope, checked, self.terms._replace(full=full))
        request = ["delta", checked[0], str(checked[1]), *checked[2:]]
        try:
            kept: KeyedResult = yield KeyedTransaction("ledger.book", owner.keys, named or "", request, after, steps)
        except KeyReused:
            if key is not None:
                raise
            return (yield from self._by_reference(owner, checked))
        return _marked(kept) if key is None and kept.replayed else kept

    def emit_many(
        self,
        owner: LedgerScope,
        sent: Sequence[wire.DeltaRequest],
        key: str | None = None,
        *,
        full: OncewardError | None = None,
    ) -> Flow[KeyedResult]:
        """Book several deltas in one transaction. One that is refused leaves the others booked, and says why."""
        if not 1 <= len(sent) <= BATCH_MAX:
            raise RequestInvalid(f"the batch has {len(sent)} deltas; send 1 to {BATCH_MAX}. Nothing was booked")
        checked = [_numbered(index, owner, one) for index, one in enumerate(sent)]
        if key is None and any(one.reference is None for one in checked):
            raise KeyMissing(
                "a delta of this batch has no referenceId, and a retry would book it twice. Send the header "
                "Idempotency-Key, or a referenceId with every delta; nothing was booked"
            )
        steps = partial(_batch_text, owner.scope, checked, self.terms._replace(full=full))
        if key is None:
            return KeyedResult((yield from _started_over("ledger.book_batch", steps)), replayed=False)
        request = ["batch", *([one[0], str(one[1]), *one[2:]] for one in checked)]
        kept: KeyedResult = yield KeyedTransaction(
            "ledger.book_batch", owner.keys, _key(owner, key), request, "refuse", steps
        )
        return kept

    def checkpoint(
        self,
        owner: LedgerScope,
        customer: str,
        period: str,
        key: str | None = None,
        *,
        close: bool | None = None,
        full: OncewardError | None = None,
    ) -> Flow[KeyedResult]:
        """
        Close a customer's period, once whatever the key; or mark it, if it still runs.

        `close=True` closes a period before its end, too, and says what that refuses; `close=False` only marks.
        """
        check_customer(customer)
        check_period(period)
        steps = partial(_checkpoint_text, owner.scope, customer, period, close)
        if full is not None:
            steps = partial(_refused, full)
        if key is None:
            return KeyedResult((yield from transact("ledger.close", steps)), replayed=False)
        request = ["checkpoint", customer, period, *([] if close is None else [close])]
        kept: KeyedResult = yield KeyedTransaction("ledger.close", owner.keys, _key(owner, key), request, "run", steps)
        return kept

    def derive(self, owner: LedgerScope, customer: str, period: str | None = None) -> Flow[wire.BalanceResponse]:
        """A balance, from verified deltas only."""
        check_customer(customer)
        if period is not None:
            check_period(period)
        derived = yield from read_tables(partial(checkpoints.derive, owner.scope, customer, period))
        return responses.balance(customer, derived, period)

    def receipt(
        self, owner: LedgerScope, customer: str, *, reference: str | None = None, period: str | None = None
    ) -> Flow[wire.ReceiptResponse]:
        """The receipt of a delta or of a closed period: the same one every time."""
        check_customer(customer)
        if (reference is None) == (period is None):
            raise RequestInvalid("a receipt is for a delta or for a period: send either referenceId or period")
        if reference is not None:
            named = _reference(owner, reference)
            found = yield from read_tables(
                partial(receipts_and_gaps.receipt_of_reference, owner.scope, customer, named)
            )
        else:
            month = check_period(period or "")
            found = yield from read_tables(partial(receipts_and_gaps.receipt_of_period, owner.scope, customer, month))
        return responses.receipt(customer, found)

    def delta(self, owner: LedgerScope, id: str) -> Flow[wire.DeltaResponse]:
        """One delta."""
        if not _ID.fullmatch(id):
            raise RequestInvalid("this is not the id of a delta: an id is dl_ and 32 hex digits")
        return responses.delta((yield from read_tables(partial(ledger_entries.find_by_id, owner.scope, id))))

    def gaps(self, owner: LedgerScope, customer: str) -> Flow[wire.GapsResponse]:
        """Numbers that are missing."""
        check_customer(customer)
        return responses.gaps(
            customer, (yield from read_tables(partial(receipts_and_gaps.find_gaps, owner.scope, customer)))
        )

    def add_customer(self, owner: LedgerScope, customer: str) -> Flow[bool]:
        """Make a customer known; False if it was."""
        check_customer(customer)
        return (yield from transact("ledger.customer", partial(ledger_entries.add_customer, owner.scope, customer)))

    def verify_queued(self, limit: int = verification.BATCH) -> Flow[int]:
        """Give the oldest queued deltas their verdict; how many there were. Any number of workers may do this."""
        entries: list[LedgerEntry] = yield from read_tables(partial(verification.queued_entries, limit))
        if entries:
            # The rule is asked outside any transaction: it may be slow, and nobody waits for it.
            verdicts = [(entry, self.terms.rule(entry)) for entry in entries]
            yield from transact("ledger.judge", partial(verification.write_verdicts, verdicts))
        return len(entries)

    def _by_reference(self, owner: LedgerScope, checked: CheckedDelta) -> Flow[KeyedResult]:
        """The reference is the key of another request: say in what they differ, or return what it has."""
        entry = yield from read_tables(partial(ledger_entries.find_by_reference, owner.scope, checked.reference or ""))
        if entry is None:
            raise KeyReused(
                "this referenceId is already the key of another request; send this delta with an Idempotency-Key of "
                "its own"
            )
        return KeyedResult(
            _text(responses.booked(BookingResult(ledger_entries.require_same(entry, checked), duplicate=True))),
            replayed=False,
        )


def check_delta(owner: LedgerScope, sent: wire.DeltaRequest) -> CheckedDelta:
    """A delta as it was sent, checked."""
    reason = sent.reason
    if not 1 <= len(reason) <= REASON_CHARACTERS_MAX or "\x00" in reason:
        raise RequestInvalid(
            f"reason is not valid: send 1 to {REASON_CHARACTERS_MAX} characters, no NUL; nothing was booked"
        )
    if sent.corrects is not None and not _ID.fullmatch(sent.corrects):
        raise RequestInvalid("corrects is not the id of a delta: an id is dl_ and 32 hex digits; nothing was booked")
    return CheckedDelta(
        customer=check_customer(sent.customer_id),
        amount=parse_amount(sent.delta),
        reason=reason,
        reference=None if sent.reference_id is None else _reference(owner, sent.reference_id),
        metadata=None if sent.metadata is None else _metadata(sent.metadata),
        corrects=sent.corrects,
        period=None if sent.period is None else check_period(sent.period),
    )


def check_customer(customer: str) -> str:
    """Give a customer's id back if it is one."""
    if is_customer(customer):
        return customer
    raise RequestInvalid("customerId is not valid: send 1 to 128 of A-Z, a-z, 0-9, '_', '.', ':', '-'")


def _key(owner: LedgerScope, key: str) -> str:
    return environment_key(owner.environment, key)


def _reference(owner: LedgerScope, reference: str) -> str:
    try:
        return environment_key(owner.environment, reference)
    except KeyInvalid as error:
        raise KeyInvalid(f"referenceId: {error}") from None


def _metadata(metadata: dict[str, Any]) -> str:
    text = canonical(_floats(metadata))
    if len(text) > METADATA_BYTES_MAX:
        raise RequestInvalid(f"metadata has {len(text)} bytes; the limit is {METADATA_BYTES_MAX}. Nothing was booked")
    return text.decode()


def _floats(value: Any) -> Any:
    """Numbers of metadata are what JSON makes of them; they are kept and not counted with."""
    if isinstance(value, Decimal):
        if not isfinite(float(value)):
            raise RequestInvalid("metadata has a number beyond what a double can hold; send it as a text")
        return float(value)
    if isinstance(value, dict):
        return {name: _floats(one) for name, one in value.items()}
    return [_floats(one) for one in value] if isinstance(value, list) else value


def _numbered(index: int, owner: LedgerScope, sent: wire.DeltaRequest) -> CheckedDelta:
    try:
        return check_delta(owner, sent)
    except (RequestInvalid, KeyInvalid) as error:
        raise RequestInvalid(f"deltas[{index}]: {error}; nothing of the batch was booked") from None


# --- responses as text, as they are stored ---


def _text(shown: Any) -> str:
    return msgspec.json.encode(shown).decode()


def _marked(kept: KeyedResult) -> KeyedResult:
    """The response to a reference that came without a key: it says itself that it is a duplicate."""
    return kept._replace(text=_text({**responses.document(kept.text), "duplicate": True}))


def _booked_text(scope: str, checked: CheckedDelta, terms: LedgerTerms) -> SqlSteps[str]:
    return _text(responses.booked((yield from ledger_entries.book(scope, checked, terms))))


def _checkpoint_text(scope: str, customer: str, period: str, close: bool | None) -> SqlSteps[str]:
    return _text(responses.checkpointed((yield from checkpoints.checkpoint(scope, customer, period, close))))


def _refused(error: OncewardError) -> SqlSteps[str]:
    """In place of what would be new."""
    yield Sql("SELECT 1", {})
    raise error


def _started_over(at: str, steps: Callable[[], SqlSteps[str]]) -> Flow[str]:
    """In a transaction; again, if it has to start over."""
    for _ in range(TRIES):
        try:
            return (yield from transact(at, steps))
        except RetryTransaction:
            continue
    raise StoreContended(retry_after_seconds=AGAIN_SECONDS)


def _batch_text(scope: str, checked: list[CheckedDelta], terms: LedgerTerms) -> SqlSteps[str]:
    made = yield from ledger_entries.book_batch(scope, checked, terms)
    return _text(responses.batch([_item(index, one) for index, one in enumerate(made)]))


def _item(index: int, made: BookingResult | OncewardError) -> wire.DeltaBatchItem:
    """What one delta of a batch came to."""
    if isinstance(made, OncewardError):
        return wire.DeltaBatchItem(index, booked=False, code=made.code, detail=str(made))
    return wire.DeltaBatchItem(index, not made.duplicate, responses.booked(made))
