"""The SDKs of model providers on our transports: one key on every attempt, and one layer of retries."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest
from client_support import Web, sent

from colours import Awaited
from onceward import Retry
from servers.faults import FaultServer, respond

KEY = {"Idempotency-Key": "ask:17"}
CHAT = respond(
    200,
    body=json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}],
        }
    ).encode(),
)
MESSAGE = respond(
    200,
    body=json.dumps(
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "42"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    ).encode(),
)
ASK: list[Any] = [{"role": "user", "content": "6 x 7?"}]


@pytest.fixture(params=["httpx2", "httpx2-async"])
def web(request: pytest.FixtureRequest) -> Web:
    """The library that these SDKs are made of, in both colours."""
    return Web(request.param)


def asked(sdk: Any, answer: Any) -> Any:
    """What an SDK's call came to."""
    return sdk.wait(answer) if isinstance(sdk, Awaited) else answer


def test_openai_sends_one_key_on_every_attempt(web: Web, still: Any) -> None:
    """
    A 429 with a wait, a broken line, then the answer: three requests, one key, one body, no retry of the SDK's own.
    """
    kind = openai.AsyncOpenAI if web.awaits else openai.OpenAI
    options = web.sdk_options(Retry(environment=still))
    with FaultServer(respond(429, {"retry-after-ms": "1500"}), "close_after_read", CHAT) as server:
        with web.using(kind(api_key="sk-x", base_url=server.url, **options)) as sdk:
            answer = asked(sdk, sdk.chat.completions.create(model="m", messages=ASK, extra_headers=KEY))
        seen = sent(server)

    assert answer.choices[0].message.content == "42"
    assert [(one.key, one.headers["x-stainless-retry-count"]) for one in seen] == [("ask:17", "0")] * 3
    assert len({one.body for one in seen}) == 1
    assert still.slept[0] >= 1.5


def test_anthropic_sends_one_key_on_every_attempt(web: Web, still: Any) -> None:
    """
    The same with its SDK.
    """
    kind = anthropic.AsyncAnthropic if web.awaits else anthropic.Anthropic
    options = web.sdk_options(Retry(environment=still))
    with FaultServer(respond(529), "close_after_read", MESSAGE) as server:
        with web.using(kind(api_key="x", base_url=server.url, **options)) as sdk:
            message = asked(sdk, sdk.messages.create(model="m", max_tokens=9, messages=ASK, extra_headers=KEY))
        seen = sent(server)

    assert getattr(message.content[0], "text", "") == "42"
    assert [one.key for one in seen] == ["ask:17"] * 3
    assert len({one.body for one in seen}) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_without_a_key_a_model_is_asked_once(web: Web, still: Any, status: int) -> None:
    """
    The SDK raises what it always raises, after one request; by itself it would have made three.
    """
    kind = openai.AsyncOpenAI if web.awaits else openai.OpenAI
    options = web.sdk_options(Retry(environment=still))
    with FaultServer(respond(status)) as server:
        with (
            web.using(kind(api_key="sk-x", base_url=server.url, **options)) as sdk,
            pytest.raises(openai.InternalServerError),
        ):
            asked(sdk, sdk.chat.completions.create(model="m", messages=ASK))
        assert len(server.requests) == 1


def test_by_itself_the_sdk_sends_three_requests_and_no_key() -> None:
    """
    The negative control: what this is about.
    """
    with FaultServer(respond(503, {"retry-after-ms": "1"})) as server:
        with openai.OpenAI(api_key="sk-x", base_url=server.url) as sdk, pytest.raises(openai.InternalServerError):
            sdk.chat.completions.create(model="m", messages=ASK)
        assert [one.key for one in sent(server)] == [None] * 3
