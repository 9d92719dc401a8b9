"""
What a sealed value looks like where it is stored, and what it is bound to. No cipher is here: a `Seal` brings that.

    codec column     sealed/1:json/1                   the codec of what is inside
    value            f5 4f 57 01  B  N  key id  ...    magic and version, what it is bound to, the key's id, the rest

The associated data has everything that says which value of which row this is: what it is (a result, a failure, a dead
letter's payload), scope, record id, codec, fingerprint and the claim that wrote it. So a value that is moved to another
row, another scope or another attempt's row does not open. The claim is named by its fence. A write that claims and
settles at once gets its fence from the store, after it is sealed: there, the claim's random token stands for it.

`Sealer` stands between the rules and a store: what goes down is sealed, what comes up is opened. What cannot be opened
comes up as `UnopenedValue` and raises where somebody wants to read it, and only there: a record that cannot be read is
still a record, and nothing runs because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from onceward._core.errors import ConfigurationError, OncewardError, SealBroken, SealKeyMissing, StoreUnavailable
from onceward._core.keys import digest_of
from onceward._core.record import rewrite_values
from onceward._core.record_types import PeekResult, PutResult, Record, Write

SEALED_CODEC: Final = "sealed/1:"
"""In front of the codec of what is sealed."""
MAGIC: Final = b"\xf5OW\x01"
"""No text begins with this byte, so a sealed failure is never taken for a plain one. The last byte is the version."""
FAILURE: Final = "failure/1"
"""What stands for the codec of a failure, whose column has none."""
PAYLOAD: Final = "payload/1"
"""And for that of a dead letter's payload, which is sealed inside the letter."""

_BY_FENCE, _BY_TOKEN, _BY_ID = b"\x01", b"\x02", b"\x03"
_KEY_ID_AT = len(MAGIC) + 2
KEY_ID_BYTES_MAX: Final = 255


class SealContext(NamedTuple):
    """Which value of which row is sealed: whoever opens it has to say the same."""

    scope: str
    id: bytes
    codec: str
    fingerprint: bytes
    claim: bytes
    """How the claim is named (by its fence, by its token, or not at all), and its name."""

    def associated_data(self, key_id: str) -> bytes:
        """All of it and the key's id, for a cipher to authenticate. Lengths go first, so no two are alike."""
        parts = (b"onceward/seal/1", self.scope.encode(), self.id, self.codec.encode(), self.fingerprint, self.claim)
        return b"".join(len(part).to_bytes(4, "big") + part for part in (*parts, key_id.encode()))


class SealedData(NamedTuple):
    """What a `Seal` made of a value: the id of the key, which is stored in plain text, and the sealed bytes."""

    key_id: str
    data: bytes


@runtime_checkable
class Seal(Protocol):
    """
    Turns a value into bytes that others can neither read nor move elsewhere, and back. `Sealed` is one; a key service
    of yours can be another. It is called while an operation runs: keep it quick.
    """

    def seal(self, data: bytes, context: SealContext) -> SealedData:
        """Encrypt, and authenticate `context.associated_data(key_id)` with it."""

    def unseal(self, sealed: SealedData, context: SealContext) -> bytes:
        """Decrypt; `SealKeyMissing` if there is no key of that id, and any other error if it does not fit."""


class UnopenedValue(bytes):
    """A stored value that could not be opened. Whoever wants to read it is told why; nobody can write it back."""

    _why: OncewardError

    def __new__(cls, data: bytes, why: OncewardError) -> UnopenedValue:
        """Keep the stored bytes, and what to say of them."""
        made = super().__new__(cls, data)
        made._why = why
        return made

    def error(self) -> OncewardError:
        """Why it cannot be read: a new error for everybody who asks."""
        why = self._why
        return type(why)(str(why), retry_after_seconds=why.retry_after_seconds)


# --- the stored form ---


def is_sealed(codec: str | None, data: bytes | None) -> bool:
    """Whether a stored value is in the sealed form, by its codec or, where there is none, by its first bytes."""
    if codec is not None:
        return codec.startswith(SEALED_CODEC)
    return data is not None and data.startswith(MAGIC)


def unreadable_error(data: bytes | None) -> OncewardError:
    """What to raise where somebody wants to read a value that is still sealed."""
    if isinstance(data, UnopenedValue):
        return data.error()
    try:
        key_id = _parse(data or b"").key_id
    except SealBroken as broken:
        return broken
    return SealKeyMissing(
        f"this value is sealed with key {key_id}, which was not given here. Give the gate seal=Sealed(...) "
        "with that key (a command: --seal-keys FILE)"
    )


def key_id_of(data: bytes) -> str | None:
    """The id of the key that a stored value is sealed under; None if it is not sealed, or damaged."""
    try:
        return _parse(data).key_id
    except SealBroken:
        return None


class _Parts(NamedTuple):
    bound: bytes
    key_id: str
    data: bytes


def _parse(data: bytes) -> _Parts:
    end = _KEY_ID_AT + data[_KEY_ID_AT - 1] if len(data) >= _KEY_ID_AT else 0
    key_id = data[_KEY_ID_AT:end]
    if not data.startswith(MAGIC) or not key_id or len(data) <= end or not key_id.isascii():
        raise SealBroken("a sealed value is damaged: it was cut short or overwritten")
    return _Parts(data[_KEY_ID_AT - 2 : _KEY_ID_AT - 1], key_id.decode("ascii"), bytes(data[end:]))


def seal_value(seal: Seal, data: bytes, context: SealContext) -> bytes:
    """The stored form of a value. Whatever the seal raises, nothing was written: it is like a store that is away."""
    try:
        key_id, sealed = seal.seal(data, context)
        name = key_id.encode("ascii")
        if not 0 < len(name) <= KEY_ID_BYTES_MAX:
            raise ValueError("a key's id is 1 to 255 ASCII characters")
    except OncewardError:
        raise
    except Exception as error:
        raise StoreUnavailable(
            f"the value could not be sealed, so it was not stored ({type(error).__name__}): see what the seal needs"
        ) from error
    return MAGIC + context.claim[:1] + bytes((len(name),)) + name + sealed


def open_value(seal: Seal, data: bytes, context: SealContext, where: str) -> bytes:
    """The value again; `SealBroken` or `SealKeyMissing` if it does not open there. `where` names the row."""
    parts = _parse(data)
    if parts.bound != context.claim[:1]:
        raise _broken(where)
    try:
        return seal.unseal(SealedData(parts.key_id, parts.data), context)
    except OncewardError:
        raise
    except Exception as error:
        raise _broken(where) from error


def _broken(where: str) -> SealBroken:
    return SealBroken(
        f"a stored value of {where} cannot be opened: it was changed, or copied from another row, "
        "scope or attempt. Nothing was run or returned. Restore the row from a backup, and find out who else "
        "writes to the store. To decide by hand, erase the record once you know whether the operation happened"
    )


def row_context(scope: str, id: bytes, codec: str, fingerprint: bytes = b"") -> SealContext:
    """For a value that is bound to its row and to no claim: it is written once, and outlives who claims the row."""
    return SealContext(scope, id, codec, fingerprint, _BY_ID)


def payload_context(scope: str, id: bytes) -> SealContext:
    """For a payload inside a dead letter, which outlives the letter's own writes."""
    return row_context(scope, id, PAYLOAD)


# --- between the rules and a store ---

_Row = TypeVar("_Row", Record, PeekResult)


class Sealer:
    """Seals what is written, and opens what is read. `sealed_only` refuses values that are not sealed."""

    def __init__(self, seal: Seal, *, sealed_only: bool = False) -> None:
        self.seal = seal
        self.sealed_only = sealed_only

    def sealed(self, write: Write) -> Write:
        """The write, with its result and its failure sealed."""
        if write.result is None and write.error is None:
            return write
        claim = _BY_TOKEN + write.token if write.rise else _BY_FENCE + str(write.fence).encode()
        result, error, codec = write.result, write.error, write.codec
        if result is not None and codec is not None:
            result = self._sealed(write, codec, claim, result)
            codec = SEALED_CODEC + codec
        if error is not None:
            error = self._sealed(write, FAILURE, claim, error)
        return write._replace(codec=codec, result=result, error=error)

    def _sealed(self, write: Write, codec: str, claim: bytes, data: bytes) -> bytes:
        if isinstance(data, UnopenedValue):
            raise data.error()  # Sealed again it would never open; written as it is, neither.
        return seal_value(self.seal, data, SealContext(write.scope, write.id, codec, write.fingerprint, claim))

    def opened(self, found: Record) -> Record:
        """The record, with its values opened."""
        if found.codec is None and found.error is None:
            return found
        return self._opened(found, found.scope, found.id, found.token)

    def opened_put(self, put: PutResult, write: Write) -> PutResult:
        """What a store answered to a write; what landed is known, and not opened again."""
        found = put.record
        if found is None:
            return put
        if found.version == write.version:
            return put._replace(record=found._replace(codec=write.codec, result=write.result, error=write.error))
        return put._replace(record=self.opened(found))

    def opened_peek(self, seen: PeekResult, scope: str, id: bytes) -> PeekResult | None:
        """What a quick look shows; None if only the whole record says what it is bound to."""
        for value in (seen.result, seen.error):
            if value is not None and value.startswith(MAGIC + _BY_TOKEN):
                return None
        return self._opened(seen, scope, id, b"")

    def _opened(self, found: _Row, scope: str, id: bytes, token: bytes) -> _Row:
        codec, result, error = found.codec, found.result, found.error
        where = digest_of(id)
        if codec is not None:
            inner = codec.removeprefix(SEALED_CODEC)
            context = SealContext(scope, id, inner, found.fingerprint, b"")
            # By its first bytes, too: whoever changes the codec alone must not get sealed bytes taken for a result.
            marked = codec != inner or (result is not None and result.startswith(MAGIC))
            result = self._value(marked, result, context, found.fence, token, where)
            codec = SEALED_CODEC + inner if isinstance(result, UnopenedValue) else inner
        if error is not None:
            context = SealContext(scope, id, FAILURE, found.fingerprint, b"")
            error = self._value(error.startswith(MAGIC), error, context, found.fence, token, where)
        return found._replace(codec=codec, result=result, error=error)

    def _value(
        self, marked: bool, data: bytes | None, context: SealContext, fence: int, token: bytes, where: str
    ) -> bytes | None:
        if not marked:
            return self._plain(data, where)
        data = data or b""
        by_token = data[len(MAGIC) : len(MAGIC) + 1] == _BY_TOKEN
        claim = _BY_TOKEN + token if by_token else _BY_FENCE + str(fence).encode()
        try:
            return open_value(self.seal, data, context._replace(claim=claim), where)
        except OncewardError as error:
            return UnopenedValue(data, error)

    def _plain(self, data: bytes | None, where: str) -> bytes | None:
        if data is None or not self.sealed_only:
            return data
        return UnopenedValue(
            MAGIC,
            SealBroken(
                f"a stored value of {where} is not sealed, and this gate reads sealed values only (sealed_only=True). "
                "If it was stored before sealing was switched on, `onceward store reseal` seals it; otherwise, "
                "something else writes to the store"
            ),
        )


def reseal(sealer: Sealer, found: Record, version: bytes, key_id: str) -> Write | None:
    """
    The write that brings a stored record (as the store has it) under the key of that id; None if nothing is to be done.

    What cannot be opened raises, and stays as it is.
    """
    values = [value for value in (found.result, found.error) if value is not None]
    if all(key_id_of(value) == key_id for value in values):
        return None
    opened = sealer.opened(found)
    for value in (opened.result, opened.error):
        if isinstance(value, UnopenedValue):
            raise value.error()
    write = rewrite_values(opened, version=version, codec=opened.codec, result=opened.result, error=opened.error)
    return None if write is None else sealer.sealed(write)


def make_sealer(seal: Seal | None, *, sealed_only: bool = False) -> Sealer | None:
    """What a gate seals with; refused if it could not."""
    if seal is None:
        if sealed_only:
            raise ConfigurationError("sealed_only=True needs the keys, too: seal=Sealed(key)")
        return None
    if not isinstance(seal, Seal) or isinstance(seal, type):
        raise ConfigurationError("seal is Sealed(key), or an object with seal and unseal; left out, nothing is sealed")
    return Sealer(seal, sealed_only=sealed_only)


def opened_peek(
    look: Callable[[bytes], PeekResult | None], sealer: Sealer, scope: str
) -> Callable[[bytes], PeekResult | None]:
    """A store's quick look, with what it shows opened for a scope."""

    def peek(id: bytes) -> PeekResult | None:
        seen = look(id)
        return None if seen is None else sealer.opened_peek(seen, scope, id)

    return peek
