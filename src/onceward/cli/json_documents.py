"""
JSON for programs: one document a command, names in camelCase, nothing in it that a terminal would act upon.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import fields
from datetime import datetime
from typing import Any

from onceward._core.errors import OncewardError
from onceward._core.record import Record
from onceward._core.reply import Reply
from onceward.gate.record_view import HolderView, RecordView, view


def camel_case(name: str) -> str:
    """A Python name as JSON has it: lease_seconds_left -> leaseSecondsLeft."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def json_line(document: Any) -> str:
    """A document as JSON in ASCII. Everything else is escaped, also DEL, which JSON would let through."""
    return json.dumps(document, ensure_ascii=True, indent=2).replace("\x7f", "\\u007f")


def record_document(record: Record, *, with_result: bool) -> dict[str, Any]:
    """A record for programs. Lists leave the result out: a page of them may be half a gigabyte."""
    seen = view(record)
    return {
        camel_case(field.name): _plain(getattr(seen, field.name))
        for field in fields(RecordView)
        if with_result or field.name != "result"
    }


def error_document(error: OncewardError) -> dict[str, Any]:
    """What programs and agents need to know about an error."""
    return {
        "code": error.code,
        "message": str(error),
        "retry": error.retry.value,
        "retryAfterSeconds": error.retry_after_seconds,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")  # Codec bytes/1.
    if isinstance(value, HolderView):
        return {camel_case(field.name): _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Reply):
        return _answer(value)  # Codec http/1.
    return value


def _answer(reply: Reply) -> dict[str, Any]:
    """An HTTP answer: its body as text if it is text, otherwise in base64."""
    try:
        body = {"body": reply.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyInBase64": b64encode(reply.body).decode("ascii")}
    headers = [f"{name}: {value}" for name, value in reply.headers]
    return {"status": reply.status, "headers": headers, "bodyBytes": len(reply.body), **body}
