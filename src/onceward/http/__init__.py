"""
HTTP clients that carry the key: for httpx, httpx2 and requests. Each library is imported by its own module only.

    onceward.http.httpx       Transport, AsyncTransport, client, async_client
    onceward.http.httpx2      the same
    onceward.http.requests    Adapter
"""

from onceward.http.answers import raise_for_status, replayed
from onceward.http.carrying import KEY_HEADER, Carriage, ClientOptions
from onceward.http.credentials import check_credential, environment_of

__all__ = [
    "KEY_HEADER",
    "Carriage",
    "ClientOptions",
    "check_credential",
    "environment_of",
    "raise_for_status",
    "replayed",
]
