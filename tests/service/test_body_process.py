"""Long bodies are read in another process, as strictly as here, and say the same afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from service_support import Served

from onceward._core.errors import RequestInvalid
from onceward._core.strict_json import parse_json
from onceward.runtime.environment import REAL
from onceward.service.access import Accounts
from onceward.service.web.bodies import BodyParser
from onceward.service.web.body_process import LONG_BYTES, BodyProcess, shortest_form

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text('ab"\\é\x00'), some))
PAD = " " * LONG_BYTES
"""Makes a text long, and means nothing."""
INVALID = ['{"a":1,"a":2}', '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}', '{"a":', "[" * 5_000, '"\udcff"', '{"a":01}']


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What is sent."""

    text: str
    values: list[Any] = []


def parsed(parser: BodyParser, accounts: Accounts, read: bytes, kind: Any = Body) -> Any:
    """A body, or what it was refused with."""

    async def run() -> Any:
        try:
            return await parser.parse(accounts.of_tenant("acme"), read, kind)
        except (RequestInvalid, msgspec.ValidationError) as error:
            return type(error), str(error)
        finally:
            await parser.close()

    return asyncio.run(run())


@given(value=VALUES)
def test_the_shortest_form_says_the_same(value: Any) -> None:
    """
    For any value, long numbers too: as it is read here, and as msgspec reads what comes back.
    """
    short = shortest_form(json.dumps(value).encode())

    assert repr(parse_json(short)) == repr(value)
    assert repr(msgspec.json.decode(short)) == repr(value)


@pytest.mark.parametrize("text", INVALID)
def test_what_is_refused_here_is_refused_there_in_the_same_words(text: str) -> None:
    """
    A member twice, NaN, half a character, what is no JSON: long or short.
    """
    accounts, raw = Accounts(REAL.monotonic), text.encode("utf-8", "surrogateescape")

    here = parsed(BodyParser(), accounts, raw, dict[str, Any])
    there = parsed(BodyParser(), accounts, raw + PAD.encode(), dict[str, Any])

    assert here[0] is RequestInvalid
    assert [re.sub(r"column \d+", "", str(one)) for one in there] == [
        re.sub(r"column \d+", "", str(one)) for one in here
    ]


@pytest.mark.fault("long-bodies-are-read-here")
def test_a_long_body_is_paid_for_and_not_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The strict parser of this process is not asked; the time of the other one is on the tenant's account.
    """
    monkeypatch.setattr("onceward.service.web.bodies.parse_json", lambda *arguments, **options: pytest.fail("here"))
    accounts, sent = Accounts(REAL.monotonic), b'{"text":"' + b"\\u00e4" * 700_000 + b'"}'

    found = parsed(BodyParser(), accounts, sent)

    assert found.text == "ä" * 700_000
    assert accounts.of_tenant("acme").usage().cpu_seconds > 0


@pytest.mark.fault("a-dead-reader-of-bodies-is-an-error")
def test_if_the_process_dies_bodies_are_still_read() -> None:
    """
    Killed while it is idle: that body is read here, and the next one there again.
    """
    accounts, sent = Accounts(REAL.monotonic), json.dumps({"text": PAD}).encode()

    async def run() -> list[str]:
        parser = BodyParser()
        account, found = accounts.of_tenant("acme"), []
        for _ in range(3):
            try:
                found.append((await parser.parse(account, sent, Body)).text)
            except (OSError, EOFError) as error:
                found.append(repr(error))
            process = parser._elsewhere._process
            if process is not None:
                os.kill(process.pid, signal.SIGKILL)
        await parser.close()
        return found

    assert asyncio.run(run()) == [PAD] * 3


def test_whoever_leaves_takes_its_body_along() -> None:
    """
    Cancelled in the middle of one: the process is not left with an answer that the next would get.
    """

    async def run() -> bytes | None:
        reader = BodyProcess()
        first = asyncio.create_task(reader.read(json.dumps(["first" * 500_000]).encode()))
        while reader._process is None:
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = await reader.read(b'["second"]')
        await reader.close()
        return second

    assert asyncio.run(run()) == b'["second"]'


def test_over_a_socket_a_long_value_is_written_as_it_was_sent(served: Served) -> None:
    """
    With escapes in it, and with the spaces that somebody left between.
    """
    database = served.database()
    body = b'{"sql": "INSERT INTO events VALUES (?, ?)",' + b" " * LONG_BYTES + b'"params": ["long", "\\u00e4\\n\\""]}'

    sent = served.call("POST", f"{database}/query", raw=body)

    assert sent.status == 200
    assert served.query(database, "SELECT name FROM events").document["rows"] == [['ä\n"']]
