"""
Compute the vectors of `shared.json` anew, with Python: what it and the TypeScript client must agree on, byte for byte.

    python tests/core/golden/recompute_shared.py          print them as they are now
    python tests/core/golden/recompute_shared.py --write  write them back, after adding an input

Both languages read that one file (`tests/core/keys/test_golden_shared.py`, `clients/typescript/test/golden.test.js`).
Values that JSON has no word for stand as objects with the member `$`:

    {"$": "bigint", "text": "18446744073709551616"}     {"$": "bytes", "hex": "fffe"}     {"$": "date", "ms": 0}
    {"$": "number", "text": "NaN"}                      {"$": "set", "items": [...]}      {"$": "nested", "levels": 257}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from onceward._core.backoff import Backoff, wait_after_server
from onceward._core.canonical import canonical
from onceward._core.errors import OncewardError
from onceward._core.key_derivation import derive, input_hash
from onceward._core.key_recipes import recipe
from onceward._core.keys import check_key, environment_key
from onceward._core.retry_headers import retry_hints
from onceward._core.verdict_tables.http_statuses import ResponseInfo, verdict_by_status
from onceward.client.responses import _CLASSES
from onceward.protocol.amounts import format_amount, parse_amount
from onceward.protocol.errors import SqlError, SqlKind
from onceward.protocol.sql_values import from_json
from onceward.protocol.token_format import parse_token

SHARED = Path(__file__).with_name("shared.json")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def typed(value: Any) -> Any:
    """A value of the file as Python has it."""
    match value:
        case {"$": "bigint", "text": str(text)}:
            return int(text)
        case {"$": "number", "text": str(text)}:
            return float(text)
        case {"$": "bytes", "hex": str(digits)}:
            return bytes.fromhex(digits)
        case {"$": "date", "ms": int(milliseconds)}:
            return EPOCH + timedelta(milliseconds=milliseconds)
        case {"$": "set", "items": list(items)}:
            return {typed(item) for item in items}
        case {"$": "nested", "levels": int(levels)}:
            made: list[Any] = []
            for _ in range(levels - 1):
                made = [made]
            return made
        case dict():
            return {name: typed(member) for name, member in value.items()}
        case list():
            return [typed(item) for item in value]
    return value


def untyped(value: Any) -> Any:
    """A value of Python's as the file has it."""
    if isinstance(value, bytes):
        return {"$": "bytes", "hex": value.hex()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return {"$": "bigint", "text": str(value)}
    return value


def or_code(compute: Callable[[], Any]) -> Any:
    """A result; or the code of the error that it is refused with."""
    try:
        return compute()
    except OncewardError as error:
        return {"refused": error.code}


def _wait(vector: dict[str, Any]) -> float:
    own = Backoff().wait(vector["retries"], vector["chance"])
    return own if vector["asked"] is None else wait_after_server(vector["asked"], own)


def _hints(vector: dict[str, Any]) -> dict[str, Any]:
    found = retry_hints(vector["headers"], now=EPOCH + timedelta(milliseconds=vector["now"]))
    return {"wait": found.wait, "retry": found.retry}


def _verdict(vector: dict[str, Any]) -> list[str]:
    info = ResponseInfo(vector["status"], vector.get("headers", {}), vector["code"])
    found = verdict_by_status(info, retry_500=True, now=EPOCH)
    return [found.certainty.value, found.kind.value, found.action.value]


def _error(vector: dict[str, Any]) -> dict[str, str]:
    found = _CLASSES[vector["code"]]
    return {"name": found.__name__, "fault": found.fault.value, "retry": found.retry.value}


def _sql_error(vector: dict[str, Any]) -> dict[str, str]:
    found = SqlError(SqlKind(vector["kind"]), "")
    return {"fault": found.fault.value, "retry": found.retry.value}


def _derived(vector: dict[str, Any]) -> str:
    return derive(**{**vector["fields"], "input": typed(vector["fields"]["input"])})


COMPUTE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "canonical": lambda v: or_code(lambda: canonical(typed(v["value"])).decode()),
    "input_hash": lambda v: input_hash(typed(v["value"])),
    "derive": lambda v: or_code(lambda: _derived(v)),
    "recipe": lambda v: or_code(lambda: recipe(v["template"]).key(typed(v["values"]))),
    "key": lambda v: or_code(lambda: check_key(v["key"], v["limit"])),
    "environment_key": lambda v: or_code(lambda: environment_key(v["environment"], v["key"])),
    "amount": lambda v: or_code(lambda: format_amount(parse_amount(typed(v["value"])))),
    "token": lambda v: or_code(lambda: parse_token(v["text"]).environment),
    "sql_value": lambda v: untyped(from_json(v["json"])),
    "wait": _wait,
    "retry_hints": _hints,
    "verdict": _verdict,
    "error": _error,
    "sql_error": _sql_error,
}


def recompute(shared: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The same vectors, each result computed now."""
    return {part: [{**vector, "gives": COMPUTE[part](vector)} for vector in shared[part]] for part in shared}


def as_text(shared: dict[str, list[dict[str, Any]]]) -> str:
    """The file: a line for each vector, in ASCII, so that nothing on the way can change it."""
    parts = []
    for part, vectors in shared.items():
        lines = ",\n".join(f"    {json.dumps(vector)}" for vector in vectors)
        parts.append(f"  {json.dumps(part)}: [\n{lines}\n  ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    made = as_text(recompute(json.loads(SHARED.read_text(encoding="utf-8"))))
    if "--write" in sys.argv:
        SHARED.write_text(made, encoding="utf-8")
    else:
        print(made, end="")
