"""
Hypothesis strategies for keyed requests, and for schedules of retries and crashes.

    @given(pair=request_pairs())
    def test_a_changed_body_is_refused(pair): ...

    @given(schedule=schedules())
    def test_it_is_charged_once(schedule):
        sandbox = Sandbox()                                   # a new world for each example
        sandbox.assert_once.under(schedule, shop(sandbox).charge, "o-17")

Needs Hypothesis. What is drawn shrinks: a schedule loses the calls that do not matter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as missing:
    if missing.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        "onceward.testing.strategies needs Hypothesis: pip install hypothesis", name="hypothesis"
    ) from None

from onceward._core.canonical import canonical
from onceward._core.keys import KEY_CHARACTERS_MAX
from onceward.testing.once_scenes import Arrival
from onceward.testing.simulated_process import check_failpoint

CRASH_POINTS = (
    "claim.before",
    "claim.after",
    "call.before",
    "effect.before",
    "effect.after",
    "call.after",
    "settle.before",
    "settle.after",
)
"""What every call passes that goes through a gate and records its effect."""
PAUSES = (0.0, 1.0, 61.0, 7_200.0, 90_000.0)
"""At once, soon, after a lease, after every lease, after a day and an hour."""


class KeyedRequest(NamedTuple):
    """What a client sends: a key, and a body of JSON."""

    key: str
    body: Any


class RequestPair(NamedTuple):
    """Two requests under one key. If they are equal, the second is a retry; if not, it must be refused."""

    first: KeyedRequest
    second: KeyedRequest
    equal: bool


def keys() -> st.SearchStrategy[str]:
    """Keys as they may be: 1 to 255 visible ASCII characters."""
    return st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=KEY_CHARACTERS_MAX)


def bodies() -> st.SearchStrategy[Any]:
    """Bodies as JSON may carry them: no NaN, no half characters."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=8,
    )


@st.composite
def equal_bodies(draw: st.DrawFn, body: Any) -> Any:
    """The same body as a client may build it again: its members in another order."""
    if isinstance(body, dict):
        names = draw(st.permutations(sorted(body)))
        return {name: draw(equal_bodies(body[name])) for name in names}
    if isinstance(body, list):
        return [draw(equal_bodies(one)) for one in body]
    return body


def changed_bodies(body: Any) -> st.SearchStrategy[Any]:
    """Another body: one that is not the same request, however it is written."""
    form = canonical(body)
    nearly = [[body], {"changed": body}]
    return (st.sampled_from(nearly) | bodies()).filter(lambda other: canonical(other) != form)


@st.composite
def body_texts(draw: st.DrawFn, body: Any) -> bytes:
    """JSON text of the body, as different clients write it: order of members, blanks, escapes."""
    indent = draw(st.sampled_from([None, 0, 2]))
    ascii_only = draw(st.booleans())
    return json.dumps(draw(equal_bodies(body)), indent=indent, ensure_ascii=ascii_only).encode()


def requests() -> st.SearchStrategy[KeyedRequest]:
    """A request under a key."""
    return st.builds(KeyedRequest, keys(), bodies())


@st.composite
def request_pairs(draw: st.DrawFn) -> RequestPair:
    """Two requests under one key: equal (written in another order), or changed."""
    first, equal = draw(requests()), draw(st.booleans())
    body = draw(equal_bodies(first.body) if equal else changed_bodies(first.body))
    return RequestPair(first, KeyedRequest(first.key, body), equal)


def schedules(
    *, points: Sequence[str] = CRASH_POINTS, calls: int = 6, pauses: Sequence[float] = PAUSES
) -> st.SearchStrategy[list[Arrival]]:
    """
    Calls of one operation, up to `calls`, each a pause after the one before; some die at one of `points`.

    `assert_once.under(schedule, fn, ...)` runs one.
    """
    for point in points:
        check_failpoint(point)
    crashes = st.none() | st.sampled_from(list(points)) if points else st.none()
    return st.lists(st.builds(Arrival, st.sampled_from(list(pauses)), crashes), min_size=1, max_size=calls)
