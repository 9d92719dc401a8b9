"""
HTTP clients as a type checker sees them. Checked by `mypy --strict`, never run.
"""

from __future__ import annotations

from typing import assert_type

import httpx
import httpx2
import requests

from onceward import Retry
from onceward.http import check_credential, replayed
from onceward.http import httpx as ours
from onceward.http import httpx2 as ours2
from onceward.http.requests import Adapter


def clients() -> None:
    """A transport is a transport of its library, and a client is its library's client."""
    policy = Retry(attempts=3)
    old = httpx.Client(transport=ours.Transport(retry=policy, require_key=True))
    new = httpx2.AsyncClient(transport=ours2.AsyncTransport(lambda host: policy, key=lambda request: "k", quoted=True))
    session = requests.Session()
    session.mount("https://", Adapter(policy, pool_maxsize=4, environment="live"))

    assert_type(ours.client("live", api_key="sk_live_x", max_retries=2, timeout=30), httpx.Client)
    assert_type(ours2.async_client("test", base_url="https://example.org", require_key=True), httpx2.AsyncClient)
    assert_type(replayed(old.get("https://example.org")), bool)
    assert_type(check_credential("x", "live"), str)
    assert new is not None
