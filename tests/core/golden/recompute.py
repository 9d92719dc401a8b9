"""
Compute every golden vector anew and print them all as JSON; `--without-orjson` as if it were not installed.

`vectors.json` next to this file has the same shape. Forms, fingerprints, ids and keys are stored by users for
years, so a change in it is a change that makes their stored records unreadable: it needs a new scheme, not a
new vector. The values of canonical forms are Python expressions over the names below.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

if "--without-orjson" in sys.argv:
    sys.modules["orjson"] = None  # type: ignore[assignment]  # What `import` makes of this is ImportError.

import msgspec
import pydantic

from onceward._core.canonical import canonical
from onceward._core.codec import encode
from onceward._core.downstream_keys import downstream_key
from onceward._core.fingerprint import fingerprint, fingerprint_keyed, fingerprint_raw, text_fields
from onceward._core.key_derivation import derive, derive_colon, input_hash
from onceward._core.key_recipes import recipe
from onceward._core.keys import mint_from, record_id

VECTORS = Path(__file__).with_name("vectors.json")


class Colour(Enum):
    RED = "red"
    PRICE = Decimal("1.50")


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


Point = namedtuple("Point", "x y")


@dataclass
class Order:
    order_id: str
    amount: Decimal
    _note: str = "kept"


class Struct(msgspec.Struct, rename="camel"):
    order_id: str
    lines: list[int]


class Model(pydantic.BaseModel):
    order_id: str = pydantic.Field(alias="orderId")
    at: datetime


# What the expressions in vectors.json may use.
NAMES: dict[str, object] = {
    kind.__name__: kind
    for kind in (
        *(Colour, Level, Word, Point, Order, Struct, Model),
        *(Decimal, UUID, OrderedDict, date, datetime, time, timedelta, timezone),
    )
}
NAMES |= {"UTC": UTC, "MappingProxyType": MappingProxyType}


def value_of(expression: str) -> object:
    return eval(expression, dict(NAMES))


def recompute(vectors: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
    """The same vectors, each result computed now."""
    return {part: [{**vector, "gives": _COMPUTE[part](vector)} for vector in vectors[part]] for part in vectors}


_COMPUTE = {
    "canonical": lambda v: canonical(value_of(v["value"])).decode("utf-8"),
    "input_hash": lambda v: input_hash(value_of(v["value"])),
    "fingerprint": lambda v: fingerprint(value_of(v["value"])).hex(),
    "fingerprint_raw": lambda v: fingerprint_raw(bytes.fromhex(v["bytes"])).hex(),
    "fingerprint_keyed": lambda v: fingerprint_keyed(value_of(v["value"]), bytes.fromhex(v["secret"])).hex(),
    "text_fields": lambda v: text_fields(v["fields"]).hex(),
    "stored": lambda v: encode(value_of(v["value"])).data.hex(),
    "record_id": lambda v: record_id(*v["parts"]).hex(),
    "mint_from": lambda v: mint_from(bytes.fromhex(v["bytes"])),
    "derive": lambda v: derive(**v["fields"]),
    "derive_colon": lambda v: derive_colon(**v["fields"]),
    "downstream_key": lambda v: downstream_key(bytes.fromhex(v["id"]), v["profile"]),
    "recipe": lambda v: recipe(v["template"]).key(v["values"]),
}

if __name__ == "__main__":
    print(json.dumps(recompute(json.loads(VECTORS.read_text(encoding="utf-8")))))
