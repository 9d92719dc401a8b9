"""
Keys that can be made again: the same call gives the same key, in any process, at any time.

`derive` is the recipe for an agent's tool calls: who (worker), in which run, at which turn, with which tool,
asking for what (input). A worker that crashed makes the same key again from what it has stored, so nothing
needs to be saved before the first attempt. `derive_colon` is an older form of the same five fields, kept for
tables that already hold such keys.
"""

from __future__ import annotations

from hashlib import sha256

from onceward._core.canonical import canonical
from onceward._core.display_text import python_kind
from onceward._core.errors import KeyInvalid
from onceward._core.keys import length_prefixed

_DOMAIN = b"onceward/derive/1"


def derive(*, worker: str, run: str, turn: int | str, tool: str, input: object) -> str:
    """
    Make the key of one tool call: 64 lower-case hex digits, the same whenever the five fields are.

    Lengths go into the hash, so that ("a:b", "c") and ("a", "b:c") are two keys. `input` counts by its
    canonical form, and `turn` by its text: 3 and "3" are one turn, because stored numbers come back as text.
    """
    hasher = sha256(_DOMAIN)
    for part in (_text("worker", worker), _text("run", run), _turn("turn", turn), _text("tool", tool)):
        hasher.update(length_prefixed(part))
    hasher.update(sha256(canonical(input)).digest())
    return hasher.hexdigest()


def derive_colon(*, worker_id: str, run_id: str, turn_seq: int | str, tool_name: str, canonical_input_hash: str) -> str:
    """
    Make a key the older way: SHA-256, in hex, of the five fields with colons between them.

    A colon inside a field would let two calls share a key, so such a field is refused: use `derive` there.
    `input_hash` gives the last field.
    """
    parts = {
        "worker_id": _text("worker_id", worker_id),
        "run_id": _text("run_id", run_id),
        "turn_seq": _turn("turn_seq", turn_seq),
        "tool_name": _text("tool_name", tool_name),
        "canonical_input_hash": _text("canonical_input_hash", canonical_input_hash),
    }
    for name, part in parts.items():
        if ":" in part:
            raise KeyInvalid(f"{name} has a colon in it, which this form cannot tell from its own; use derive(...)")
    return sha256(":".join(parts.values()).encode("utf-8")).hexdigest()


def input_hash(value: object) -> str:
    """SHA-256 of a value's canonical form, as 64 hex digits: the same whatever the order of its members."""
    return sha256(canonical(value)).hexdigest()


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise KeyInvalid(f"{name} is {python_kind(value)} and must be a str; pass the id as text")
    if not value:
        raise KeyInvalid(f"{name} is empty; without it, calls that differ only in their {name} would share a key")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise KeyInvalid(f"{name} contains half a character (a lone surrogate); decode it again") from None
    return value


def _turn(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise KeyInvalid(f"{name} is negative; count turns from 0")
        return int.__repr__(value)
    return _text(name, value)
