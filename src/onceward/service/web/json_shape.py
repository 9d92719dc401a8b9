"""
How much there is in a long JSON text: asked before it is parsed.

A few megabytes of tiny members take a tenth of a second to parse, in which nothing else of this process goes on. No
request needs so many. Counting them takes a twentieth of that: what is outside of strings is left, and looked through
for commas, colons and brackets, piece by piece. Between two pieces other threads have their turn, and a text that has
too much in it is not looked through to its end.
"""

from __future__ import annotations

from collections.abc import Iterator

from onceward._core.errors import RequestInvalid

MEMBERS_MAX = 20_000
"""Names of objects: a hundred statements with two hundred named parameters each."""
VALUES_MAX = 100_000
"""Elements and members together: a hundred statements with a thousand parameters each."""


PIECE_BYTES = 65_536
"""Looked at in one go: a fraction of a millisecond."""


def check_shape(read: bytes) -> None:
    """`RequestInvalid` if there is more in a JSON text than any request can have. What is no JSON may pass."""
    quotes, inside = 0, 0
    members, commas, lists, objects = 0, 0, 0, 0
    for piece in _pieces(read):
        # A backslash that is escaped itself, then a quote that is: what is left of the quotes begins and ends strings.
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[inside::2])
        quotes += len(parts) - 1
        inside = quotes % 2
        members += outside.count(b":")
        commas += outside.count(b",")
        lists += outside.count(b"[")
        objects += outside.count(b"{")
        strings = quotes // 2
        if strings > MEMBERS_MAX + VALUES_MAX or members > MEMBERS_MAX or max(commas, lists, objects) > VALUES_MAX:
            raise RequestInvalid(
                f"the body has too many values: at most {MEMBERS_MAX} members of objects and "
                f"{VALUES_MAX} values. Nothing was run; send it in several requests"
            )


def _pieces(read: bytes) -> Iterator[bytes]:
    """The text in pieces, none of which ends between a backslash and what it escapes."""
    start = 0
    while start < len(read):
        piece = read[start : start + PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = read[start : start + PIECE_BYTES + 1]
        yield piece
        start += len(piece)
