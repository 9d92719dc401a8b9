"""
The fingerprint of an HTTP request: a hash of its method, path, query, chosen headers and body. 32 bytes.

    body                                          compared by
    --------------------------------------------  --------------------------------------------------------------
    application/json, ...+json, in UTF-8          its canonical form: order and white space do not matter
    application/x-www-form-urlencoded             its fields: the order of different names does not matter
    multipart/form-data                           its parts in their order, whatever the boundary
    anything else, or compressed, or longer       its bytes
    than `memory_bytes_max` (JSON and forms)

The path and the query count as they were sent: `%2F` is not `/`. Two spellings that are not known to be equal are two
requests. At worst a retry is refused (`key_reused`); one request is never taken for another.

A body is fed piece by piece as it arrives. At most `memory_bytes_max` of it is held here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from onceward._core.canonical import canonical_json
from onceward._core.errors import RequestInvalid
from onceward.http.server.media_type import parse_media_type
from onceward.http.server.multipart_hash import MultipartHash
from onceward.http.server.profile import Profile

DOMAIN = b"onceward/http/1\0"
FIELDS_MAX = 10_000
"""Fields of a form that are sorted by name; one with more goes by its bytes."""
BOUNDARY_CHARACTERS_MAX = 256
"""Of multipart/form-data. RFC 2046 allows 70; a body with a longer one than this goes by its bytes."""
COMPARISONS_REMEMBERED = 256
HEADER_BYTES_REMEMBERED = 256
"""Clients send the same few Content-Types over and over; long ones are not worth the memory."""


class BodyHasher(Protocol):
    """Hashes a body piece by piece, in one of the ways above."""

    def feed(self, piece: bytes) -> None:
        """Add the next piece."""

    def digest(self) -> bytes:
        """The name of the way, and 32 bytes; `RequestInvalid` if the body has no canonical form."""


class RequestFingerprint:
    """The fingerprint of one request, while its body arrives."""

    _only: bytes | None = None
    """The whole body, as long as it has come in one piece: most do."""
    _hasher: BodyHasher | None = None
    _digest: bytes | None = None
    size = 0
    """How many bytes of the body have been fed."""

    def __init__(self, beginning: bytes, way: BodyComparison) -> None:
        self._beginning, self._way = beginning, way

    @classmethod
    def of(
        cls, method: str, path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]], profile: Profile
    ) -> RequestFingerprint:
        """Of a request with these headers; their names are in lower case."""
        found = list(headers)
        return cls(beginning_of(method, path, query) + compared_headers(found, profile), comparison_of(found, profile))

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the body."""
        if self._digest is not None:
            raise RequestInvalid("this request is complete; nothing can follow it")
        size = self.size = self.size + len(piece)
        if self._only is None and self._hasher is None and size <= self._way.held_max:
            self._only = bytes(piece)  # Bytes are not copied.
        else:
            (self._hasher or self._begin_hashing()).feed(piece)

    def digest_whole(self, body: bytes) -> bytes:
        """The 32 bytes of a request whose body has come in one piece; nothing of it was fed."""
        _, held_max, _, before, word, form_of, _ = self._way
        form = form_of(body) if form_of is not None and 0 < len(body) <= held_max else None
        if form is None:
            self.feed(body)
            return self.digest()
        found = self._digest = sha256(self._beginning + word + sha256(before + form).digest()).digest()
        return found

    def digest(self) -> bytes:
        """The 32 bytes, once the body is complete; `RequestInvalid` if it has no canonical form."""
        found = self._digest
        if found is None:
            hasher, way = self._hasher, self._way
            if hasher is None and way.form is not None:
                body = _digest_form(way, way.form, self._only or b"")
            else:
                body = (hasher or self._begin_hashing()).digest()
            found = self._digest = sha256(self._beginning + body).digest()
            self._hasher = self._only = None  # While it waits for another request, the body is not held twice.
        return found

    def _begin_hashing(self) -> BodyHasher:
        """Hash piece by piece from now on: there are several, or it is long, or it has no other form."""
        hasher = self._hasher = _hasher_for(self._way)
        if self._only is not None:
            hasher.feed(self._only)
            self._only = None
        return hasher


def beginning_of(method: str, path: bytes, query: bytes) -> bytes:
    """What the fingerprint begins with: the method, the path and the query, as they were sent."""
    return DOMAIN + sized(method.encode("latin-1")) + sized(path) + sized(query)


def compared_headers(headers: list[tuple[bytes, bytes]], profile: Profile) -> bytes:
    """The headers that a profile compares, too: they follow the beginning."""
    parts = []
    for name in profile.fingerprint_headers:
        wanted = name.encode("ascii")
        values = [value.strip(b" \t") for header, value in headers if header == wanted]
        parts += [sized(wanted), _listed(values)]
    return b"".join(parts)


def comparison_of(headers: list[tuple[bytes, bytes]], profile: Profile) -> BodyComparison:
    """How this body is compared: decided by its headers alone, so that a retry is compared in the same way."""
    kinds = tuple([value for name, value in headers if name == b"content-type"])
    encodings = tuple([value for name, value in headers if name == b"content-encoding"])
    short = sum(map(len, kinds + encodings)) <= HEADER_BYTES_REMEMBERED
    compared = _remembered_comparison_of if short else _comparison_of
    return compared(kinds, encodings, profile.fingerprint, profile.memory_bytes_max)


class BodyComparison(NamedTuple):
    """How a body is compared; without a `form` or a `boundary`, by its bytes."""

    label: bytes
    """How the bytes are to be read, in the words of the headers."""
    held_max: int
    """The longest body that is held in memory, and compared by its form."""
    kind: bytes = b""
    before: bytes = b""
    """What is hashed before a form."""
    word: bytes = b""
    """What the hash of a form is called, with the zero that ends it."""
    form: CanonicalForm | None = None
    boundary: str | None = None


def _comparison_of(
    types: tuple[bytes, ...], encodings: tuple[bytes, ...], fingerprint: str, held_max: int
) -> BodyComparison:
    """How a body with this Content-Type and Content-Encoding is compared."""
    encodings = tuple([value.strip() for value in encodings])
    label = _listed(types) + _listed(encodings)
    if fingerprint == "raw" or len(types) != 1 or any(one.lower() != b"identity" for one in encodings):
        return BodyComparison(label, held_max)
    kind, parameters = parse_media_type(types[0])
    charset, boundary = parameters.pop("charset", "utf-8").lower(), parameters.pop("boundary", None)
    # A parameter that is not known to change nothing (a version, a profile) makes another request.
    whole = _listed(
        [kind.encode(), *(f"{name}={value}".encode("latin-1") for name, value in sorted(parameters.items()))]
    )
    if charset in ("utf-8", "utf8"):
        if kind == "application/json" or kind.endswith("+json"):
            return BodyComparison(label, held_max, whole, whole + b"\1", b"json\0", canonical_json)
        if kind == "application/x-www-form-urlencoded":
            return BodyComparison(label, held_max, whole, whole + b"\1", b"form\0", _fields)
        if kind == "multipart/form-data" and boundary and len(boundary) <= BOUNDARY_CHARACTERS_MAX:
            return BodyComparison(label, held_max, whole, boundary=boundary)
    return BodyComparison(label, held_max)


_remembered_comparison_of = lru_cache(maxsize=COMPARISONS_REMEMBERED)(_comparison_of)


def _digest_form(way: BodyComparison, form_of: CanonicalForm, body: bytes) -> bytes:
    """Of a whole body, by its canonical form; by its bytes if it has none."""
    if not body:
        return way.word + sha256(way.kind).digest()
    form = form_of(body)
    if form is None:
        raw = _RawHasher(way.label)
        raw.feed(body)
        return raw.digest()
    return way.word + sha256(way.before + form).digest()


def _hasher_for(way: BodyComparison) -> BodyHasher:
    """For a body in several pieces, or a long one."""
    if way.boundary is not None:
        return _MultipartHasher(way.kind, way.boundary)
    return _RawHasher(way.label) if way.form is None else _CanonicalHasher(way, way.form)


class _RawHasher:
    """Hashes the bytes, and the headers that say how to read them."""

    def __init__(self, label: bytes) -> None:
        self._hash = sha256(label)

    def feed(self, piece: bytes | bytearray) -> None:
        self._hash.update(piece)

    def digest(self) -> bytes:
        return b"raw\0" + self._hash.digest()


class _CanonicalHasher:
    """Hashes the canonical form, which needs the whole body in memory; a longer one is hashed by its bytes."""

    def __init__(self, way: BodyComparison, form: CanonicalForm) -> None:
        self._way, self._form = way, form
        self._held = bytearray()
        self._raw: _RawHasher | None = None

    def feed(self, piece: bytes) -> None:
        if self._raw is None and len(self._held) + len(piece) > self._way.held_max:
            self._raw = _RawHasher(self._way.label)
            self._raw.feed(self._held)
            self._held = bytearray()
        if self._raw is None:
            self._held += piece
        else:
            self._raw.feed(piece)

    def digest(self) -> bytes:
        return _digest_form(self._way, self._form, bytes(self._held)) if self._raw is None else self._raw.digest()


class CanonicalForm(Protocol):
    """Makes the canonical form of a whole body; None if there is none: then it is hashed by its bytes."""

    def __call__(self, body: bytes, /) -> bytes | None:
        """The canonical form."""


def _fields(body: bytes) -> bytes | None:
    if body.count(b"&") >= FIELDS_MAX:
        return None
    pairs = []
    for field in body.split(b"&"):
        if field:
            name, _, value = field.partition(b"=")
            pairs.append((_decoded(name), _decoded(value)))
    # By name only: the order of values under one name may well mean something.
    pairs.sort(key=lambda pair: pair[0])
    return b"".join(sized(name) + sized(value) for name, value in pairs)


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


class _MultipartHasher:
    """Hashes the parts of a multipart body. A malformed one is refused: its handler could only guess, too."""

    def __init__(self, kind: bytes, boundary: str) -> None:
        self._kind = kind
        self._parts = MultipartHash(boundary.encode("latin-1"))

    def feed(self, piece: bytes) -> None:
        self._parts.feed(piece)

    def digest(self) -> bytes:
        found = self._parts.finish()
        if found is None:
            raise RequestInvalid(
                "the body is not multipart/form-data from its first boundary to its last, as its Content-Type says"
            )
        return b"multipart\0" + sha256(self._kind + found).digest()


def _listed(parts: Collection[bytes]) -> bytes:
    return len(parts).to_bytes(8, "big") + b"".join(map(sized, parts))


def sized(part: bytes) -> bytes:
    """A part with its length in front, so that no two different lists of parts have the same bytes."""
    return len(part).to_bytes(8, "big") + part
