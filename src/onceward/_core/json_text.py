"""
JSON text by an encoder that is made once.

`JSONEncoder.encode` makes its part in C anew for every text, which takes longer than writing a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from json import JSONEncoder, encoder
from typing import Any

try:
    from orjson import dumps as _dumps
except ImportError:
    fast_dumps: Callable[[Any], bytes] | None = None
    """orjson's, if it is installed (extra `fast`): a quarter of the time, for what both write in the same bytes."""
else:
    fast_dumps = _dumps


def pieces_with(made: JSONEncoder) -> Callable[[Any, int], Iterable[str]]:
    """What gives the pieces of a value's text as `made` writes it; `made` must not look for circles. Give it 0, too."""
    make, indent = getattr(encoder, "c_make_encoder", None), getattr(made, "indent", None)
    if make is None or made.check_circular or indent is not None:
        return lambda value, _: made.iterencode(value)
    texts = encoder.encode_basestring_ascii if made.ensure_ascii else encoder.encode_basestring
    # fmt: off
    return make(  # type: ignore[no-any-return]
        None, made.default, texts, None, made.key_separator, made.item_separator,
        made.sort_keys, made.skipkeys, made.allow_nan,
    )
    # fmt: on


def encode_with(made: JSONEncoder) -> Callable[[Any], str]:
    """The same as `made.encode`, which must not look for circles."""
    pieces = pieces_with(made)
    return lambda value: "".join(pieces(value, 0))
