"""
`encode_with`: JSON text by an encoder that is made once.

`JSONEncoder.encode` makes its part in C anew for every text, which takes longer than writing a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from json import JSONEncoder, encoder
from typing import Any


def encode_with(made: JSONEncoder) -> Callable[[Any], str]:
    """The same as `made.encode`, which must not look for circles; that itself, where there is no part in C."""
    make, indent = getattr(encoder, "c_make_encoder", None), getattr(made, "indent", None)
    if make is None or made.check_circular or indent is not None:
        return made.encode
    texts = encoder.encode_basestring_ascii if made.ensure_ascii else encoder.encode_basestring
    # fmt: off
    parts: Callable[[Any, int], tuple[str, ...]] = make(
        None, made.default, texts, None, made.key_separator, made.item_separator,
        made.sort_keys, made.skipkeys, made.allow_nan,
    )
    # fmt: on

    def encode(value: Any) -> str:
        return "".join(parts(value, 0))

    return encode
