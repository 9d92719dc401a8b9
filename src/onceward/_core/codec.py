"""
Results to bytes and back: the same bytes on every machine, and nothing but data in them.

    value --encode--> Encoded(codec, data) --decode--> value, its type restored by the return annotation

The gate hands out `decode(encode(value), restore)` on the first run too, so that a first result and its
replay are equal by construction; or a copy, where that is the same (`keep`). Three codecs exist: `bytes/1` keeps a
bytes result verbatim, `http/1` an HTTP response (see `reply.py`), and `json/1` is compact UTF-8 JSON by these rules:

    None, bool, int, float, str    themselves; no NaN or infinity, no lone surrogates
    list, tuple, NamedTuple        array
    set, frozenset                 array, sorted by the items' own JSON, so that equal sets have equal bytes
    dict, any Mapping              object; keys must be str
    dataclass                      object by field name
    pydantic model, msgspec.Struct the object that pydantic or msgspec itself would read back
    Enum                           its value
    Decimal, UUID                  text, digits preserved ("12.50")
    datetime, date, time           ISO 8601 text; the offset is kept, the name of the time zone is not
    timedelta                      ISO 8601 text in seconds ("PT90.5S", "-PT0.000001S")
    bytes inside a structure       base64 text

Nothing stored names a class, so nothing stored can choose which code runs: types come only from the
caller's own annotations (see `result_restorer.py`). No pickle, ever.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json import JSONDecoder, JSONEncoder
from math import isfinite
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

from onceward._core.errors import NotReplayable, RecordedFailure, ResultInvalid, SchemaMismatch
from onceward._core.json_text import fast_dumps, pieces_with
from onceward._core.record_types import new_tuple
from onceward._core.reply import Reply, pack_and_keep, unpack_reply
from onceward._core.sealing import MAGIC, is_sealed, unreadable_error

JSON = "json/1"
BYTES = "bytes/1"
HTTP = "http/1"
_CODECS = (JSON, BYTES, HTTP)

# Levels of arrays and objects. Newtonsoft's limit is 128 too; Python's own depends on how deep the
# caller's stack already is, and a limit that moves would make a stored result unreadable elsewhere.
NESTING_MAX = 128
# Digits of one integer. Python refuses to read more than 4,300 unless told otherwise.
INT_DIGITS_MAX = 4_000
# UTF-8 bytes of each text in a remembered failure or a refusal: room for a message, not for a dump.
MESSAGE_BYTES_MAX = 4_096

NOT_COPIED: Final = object()
"""Stands for no copy: None is one."""

Restorer: TypeAlias = Callable[[object], object]


class Encoded(NamedTuple):
    """A result as it is stored. No codec means: it ran, and its result was not kept."""

    codec: str | None
    data: bytes | None


class NotEncodable(Exception):
    """This value has no stored form. The reason says where in the value, and what to return instead."""


class KeptResult(NamedTuple):
    """A result as it is stored, and, where that is known without decoding it, as it comes back."""

    codec: str | None
    data: bytes | None
    copy: object = NOT_COPIED


def keep(value: object) -> KeptResult:
    """
    Return the stored form of a result like `encode`, with a copy if that is what `decode` would make of it.

    An atom, or a dict or list of atoms, comes back equal: a copy is as good, for a fifth of the time. The copy is what
    is encoded, because whoever still has the value may change it meanwhile.
    """
    kind, copy = type(value), NOT_COPIED
    if kind is dict:
        copied: dict[object, object] = value.copy()  # type: ignore[attr-defined]
        if _KEYS.issuperset(map(type, copied)):
            if fast_dumps is not None and _EXACT.issuperset(map(type, copied.values())):
                try:
                    return new_tuple(KeptResult, (JSON, fast_dumps(copied), copied))  # type: ignore[no-any-return]
                except TypeError:
                    pass  # An integer of more than 64 bits, or half a character.
            if _ATOMS.issuperset(map(type, copied.values())):
                copy = copied
    elif kind is list:
        items: list[object] = value.copy()  # type: ignore[attr-defined]
        if _ATOMS.issuperset(map(type, items)):
            copy = items
    elif kind is Reply:
        return _keep_reply(value)  # type: ignore[arg-type]
    elif kind in _ATOMS:
        copy = value
    codec, data = encode(value) if copy is NOT_COPIED else encode(copy, plain=True)
    return new_tuple(KeptResult, (codec, data, copy))  # type: ignore[no-any-return]


def _keep_reply(reply: Reply) -> KeptResult:
    """The same of an HTTP response: nothing in it can change, so it comes back as it is."""
    try:
        data, same = pack_and_keep(reply)
    except ResultInvalid as error:
        raise NotEncodable(f"result: {error}") from None
    return new_tuple(KeptResult, (HTTP, data, NOT_COPIED if same is None else same))  # type: ignore[no-any-return]


def given_back(kept: KeptResult, restore: Restorer | None) -> object:
    """What `decode` returns for a result that was kept just now."""
    codec, data, copy = kept
    if copy is NOT_COPIED:
        return decode(Encoded(codec, data), restore)
    return copy if restore is None else restore(copy)


def encode(value: object, *, plain: bool = False) -> Encoded:
    """
    Return the stored form of a result, or raise `NotEncodable`, whatever the value does when touched.

    `plain`: it is known that the C encoder may have this value as it is.
    """
    if type(value) is bytes:
        return Encoded(BYTES, value)
    if type(value) is Reply:
        return Encoded(*_keep_reply(value)[:2])
    try:
        if plain or _is_plain(value, NESTING_MAX):
            text = "".join(_chunks(value, 0))
            # A text on its own has no number in it, however long it is.
            if len(text) <= INT_DIGITS_MAX or type(value) is str or not _LONG_DIGITS.search(text):
                return new_tuple(Encoded, (JSON, text.encode()))  # type: ignore[no-any-return]
    except Exception:
        # NaN, a lone surrogate, ...: the fast path knows that it failed, and the careful one says where.
        return _encode_with_care(value)
    return _encode_with_care(value)


def decode(encoded: Encoded, restore: Restorer | None = None) -> object:
    """Return the result that was stored, its types restored if `restore` is given."""
    codec, data = encoded
    if codec is None:
        raise NotReplayable
    if codec not in _CODECS:
        if is_sealed(codec, data):
            raise unreadable_error(data)
        raise SchemaMismatch(
            f"this result was stored with codec {codec!r}, and this version reads {', '.join(map(repr, _CODECS))}: "
            "upgrade Onceward where the result is read"
        )
    if data is None:
        raise ResultInvalid(f"this record names codec {codec!r} and holds no result: look at the record")
    value = _from_json(data) if codec == JSON else data if codec == BYTES else unpack_reply(data)
    return value if restore is None else restore(value)


def encode_failure(exc: BaseException) -> bytes:
    """Return a failure as data: its type's qualified name, its message and its code, each cut to a limit."""
    return json_text(
        {
            "type": shortened(type_name(type(exc))),
            "message": shortened(message_of(exc)),
            "code": _code(exc),
        }
    ).encode()


def decode_failure(data: bytes) -> RecordedFailure:
    """Return, never raise, the failure that was remembered. No class is looked up by the stored name."""
    if data[:1] == MAGIC[:1]:
        raise unreadable_error(data)
    match _from_json(data):
        case {"type": str(kind), "message": str(message), "code": None | str() as code}:
            return RecordedFailure(kind, message, code)
        case _:
            raise ResultInvalid("a stored failure needs type, message and code: look at the record")


# --- JSON text, both ways. Building the C encoder and scanner once halves the cost of a small result. ---


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError("a number is too large for a float")
    return number


_LONG_DIGITS = re.compile(rf"(?<![0-9])[0-9]{{{INT_DIGITS_MAX + 1}}}")
_ENCODER = JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))
_chunks = pieces_with(_ENCODER)
_DECODER = JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
# What `raw_decode` calls: a value at a place, and where it ends; StopIteration if there is none.
_scan: Callable[[str, int], tuple[object, int]] = _DECODER.scan_once  # type: ignore[attr-defined]


def json_text(value: object) -> str:
    """Return the JSON text of a plain value (what `decode` returns without `restore`)."""
    return "".join(_chunks(value, 0))


def _from_json(data: bytes) -> object:
    try:
        text = data.decode()
        value, end = _scan(text, 0)
        if b"\\u" in data:
            json_text(value).encode()  # An escaped lone surrogate would be refused here: no UTF-8 text holds one.
    except StopIteration:
        raise ResultInvalid(f"the stored result is not {JSON} (it begins with no value): look at the record") from None
    except (ValueError, RecursionError) as exc:
        raise ResultInvalid(f"the stored result is not {JSON} ({exc}): look at the record") from exc
    if end != len(text):
        raise ResultInvalid(f"the stored result is not {JSON} (there is text after its end): look at the record")
    # Few brackets cannot nest deeply, so small results pay nothing, and most others two counts and no walk.
    if len(data) > 2 * NESTING_MAX and data.count(b"[") + data.count(b"{") > NESTING_MAX and not _is_shallow(value):
        raise ResultInvalid(f"the stored result nests deeper than {NESTING_MAX} levels: look at the record")
    return value


def _is_shallow(value: Any) -> bool:
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(NESTING_MAX):
        level = [
            item
            for box in level
            for item in (box.values() if type(box) is dict else box)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return True
    return False


# --- Any supported value to a plain one: None, bool, int, float, str, list, and dict by str. ---

_ATOMS = frozenset({type(None), bool, int, float, str})
_EXACT = _ATOMS - {float}
"""What orjson writes as our own encoder does, or not at all. NaN it writes as null."""
_KEYS = frozenset({str})


def _is_plain(value: Any, levels: int) -> bool:
    """Say whether the C encoder may have this value as it is. Exact types only: subclasses have rules."""
    kind = type(value)
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not list:
        return kind in _ATOMS
    if levels == 0:
        return False
    # One C-speed pass settles the usual flat value; only nested ones are walked.
    return _ATOMS.issuperset(map(type, value)) or all(
        type(item) in _ATOMS or _is_plain(item, levels - 1) for item in value
    )


def _write_duration(value: timedelta) -> str:
    # By whole microseconds: total_seconds() is a float and forgets some of them.
    microseconds = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    return f"{'-' if microseconds < 0 else ''}PT{seconds}{fraction}S"


_DURATION = re.compile(r"(-?)PT([0-9]+)(?:\.([0-9]{1,6}))?S")


def _parse_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, seconds, fraction = match.groups(default="")
    length = timedelta(seconds=int(seconds), microseconds=int(fraction.ljust(6, "0")))
    return -length if sign else length


def _parse_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _write_base64(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _parse_base64(text: str) -> bytes:
    return b64decode(text, validate=True)


class TextForm(NamedTuple):
    """How a type is written as text, and how `result_restorer.py` parses it."""

    write: Callable[[Any], str]
    parse: Callable[[str], object]


# The base class's own method, so that a subclass (a pandas Timestamp, say) cannot write what cannot be read.
TEXT_FORMS: dict[type, TextForm] = {
    Decimal: TextForm(Decimal.__str__, _parse_decimal),
    datetime: TextForm(datetime.isoformat, datetime.fromisoformat),
    date: TextForm(date.isoformat, date.fromisoformat),  # After datetime, which is a date too.
    time: TextForm(time.isoformat, time.fromisoformat),
    timedelta: TextForm(_write_duration, _parse_duration),
    UUID: TextForm(UUID.__str__, UUID),
    bytes: TextForm(_write_base64, _parse_base64),
    bytearray: TextForm(_write_base64, lambda text: bytearray(_parse_base64(text))),
}


def _encode_with_care(value: object) -> Encoded:
    simplifier = _Simplifier()
    try:
        if isinstance(value, bytes | bytearray) and not isinstance(value, Enum):
            return Encoded(BYTES, bytes(value))
        return Encoded(JSON, json_text(simplifier.simplify(value)).encode())
    except NotEncodable:
        raise
    except Exception as exc:
        # The effect has happened by now. Whatever a value raises when it is read, the result is "cannot be kept".
        reason = f"reading the value raised {type_name(type(exc))}; return plain data instead"
        raise NotEncodable(f"{simplifier.place()}: {reason}") from exc


class _Simplifier:
    """Turns one value into a plain one, remembering where it is so that a refusal can name the place."""

    def __init__(self) -> None:
        self._trail: list[str] = []
        self._open: set[int] = set()

    def simplify(self, value: Any) -> object:
        kind = type(value)
        if kind in _ATOMS:
            return self._atom(value)
        if isinstance(value, Enum):
            return self.simplify(value.value)
        if isinstance(value, str | int | float):
            return self._atom(_base_atom(value))
        for base in (kind,) if kind in TEXT_FORMS else TEXT_FORMS:
            if isinstance(value, base):
                if isinstance(value, Decimal) and not value.is_finite():
                    self._refuse("a Decimal that is not a finite number cannot be stored; return None or a text")
                return TEXT_FORMS[base].write(value)
        return self._container(value, kind)

    def _atom(self, value: Any) -> object:
        if type(value) is float and not isfinite(value):
            self._refuse("NaN and infinities are not JSON; return None or a text instead")
        if type(value) is int and not -_INT_BOUND < value < _INT_BOUND:
            self._refuse(f"an integer of more than {INT_DIGITS_MAX} digits cannot be stored; return a text instead")
        if type(value) is str and not value.isascii() and not _is_unicode(value):
            self._refuse("a text with a lone surrogate has no UTF-8 form; return bytes, or repair the text")
        return value

    def _container(self, value: Any, kind: type) -> object:
        if id(value) in self._open:
            self._refuse("the value contains itself; return a value without cycles")
        if len(self._trail) >= NESTING_MAX:
            self._refuse(f"the value nests deeper than {NESTING_MAX} levels; return a flatter one")
        self._open.add(id(value))
        plain = self._contents(value, kind)
        self._open.discard(id(value))
        return plain

    def _contents(self, value: Any, kind: type) -> object:
        if isinstance(value, dict):
            return self._object(value.items())
        if isinstance(value, list | tuple):
            return self._array(value)
        if isinstance(value, set | frozenset):
            return sorted(self._array(value), key=json_text)
        if is_pydantic_model(kind):
            # round_trip leaves out computed fields, which could not be read back.
            return self.simplify(value.model_dump(mode="json", by_alias=False, round_trip=True))
        if is_msgspec_struct(kind):
            return self._struct(value)
        if is_dataclass(kind):
            return self._object((field.name, getattr(value, field.name)) for field in fields(kind))
        if isinstance(value, Mapping):
            return self._object(value.items())
        return self._refuse(
            f"a {type_name(kind)} cannot be stored; return plain data, a dataclass, a pydantic model or bytes"
        )

    def _struct(self, value: Any) -> object:
        """Write a msgspec.Struct as msgspec would: under its encoded names, with its tag, without unset fields."""
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        pairs = [(name, getattr(value, field)) for name, field in names]
        config = value.__struct_config__
        if config.tag is not None:
            pairs.insert(0, (config.tag_field, config.tag))
        if config.array_like:
            return self._array(item for _, item in pairs)
        return self._object(pair for pair in pairs if type(pair[1]).__qualname__ != "UnsetType")

    def _object(self, pairs: Iterable[tuple[object, object]]) -> dict[str, object]:
        plain: dict[str, object] = {}
        for key, item in pairs:
            if not isinstance(key, str):
                self._refuse(f"the keys of an object must be str, and one is a {type_name(type(key))}; use str(key)")
            name = str.__str__(key)
            self._trail.append(f".{name}")
            self._atom(name)
            plain[name] = self.simplify(item)
            self._trail.pop()
        return plain

    def _array(self, items: Iterable[object]) -> list[object]:
        plain: list[object] = []
        for index, item in enumerate(items):
            self._trail.append(f"[{index}]")
            plain.append(self.simplify(item))
            self._trail.pop()
        return plain

    def _refuse(self, reason: str) -> NoReturn:
        raise NotEncodable(f"{self.place()}: {reason}")

    def place(self) -> str:
        return shortened("result" + "".join(self._trail))


_INT_BOUND = 10**INT_DIGITS_MAX


def _base_atom(value: str | int | float) -> str | int | float:
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def is_pydantic_model(kind: type) -> bool:
    """Say whether this is a pydantic model class, without importing pydantic."""
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate_json")


def is_msgspec_struct(kind: type) -> bool:
    """Say whether this is a msgspec.Struct class, without importing msgspec."""
    return hasattr(kind, "__struct_fields__") and hasattr(kind, "__struct_config__")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- Failures ---


def type_name(kind: type) -> str:
    """A type by its qualified name."""
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


def message_of(exc: BaseException) -> str:
    """What an exception says, whatever it does when asked."""
    try:
        return str(exc)
    except Exception:
        return "(the exception could not be turned into text)"


def _code(exc: BaseException) -> str | None:
    try:
        code = getattr(exc, "code", None)
        return shortened(str(code)) if isinstance(code, str | int) else None
    except Exception:
        return None


def shortened(text: str, limit: int = MESSAGE_BYTES_MAX) -> str:
    """A text of so many bytes of UTF-8 at most; what has no UTF-8 form is escaped."""
    # Slicing first keeps a message of a gigabyte from being copied whole.
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    ellipsis = "…"
    return data[: limit - len(ellipsis.encode())].decode(errors="ignore") + ellipsis
