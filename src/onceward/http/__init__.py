"""
HTTP, both ends: clients that send the same key on every attempt, servers that run a keyed request once.

    onceward.http.httpx, httpx2, requests    transports and an adapter, over `client/`
    onceward.http.asgi, wsgi, django         `IdempotencyMiddleware`, over `server/`

May import: _core, runtime, stores, gate, retry. Each library is imported by its own module only. Start reading with
`server/request_admission.py` for servers, `client/request_preparer.py` for clients.
"""

from onceward.http.client.credentials import check_credential, environment_of
from onceward.http.client.request_preparer import KEY_HEADER, ClientOptions, TransportOptions
from onceward.http.client.responses import raise_for_status, replayed
from onceward.http.server.app_routes import idempotent, not_idempotent
from onceward.http.server.profile import PROFILES, Profile, profile
from onceward.http.server.request_admission import IncomingRequest
from onceward.http.server.routes import Route

__all__ = [
    "KEY_HEADER",
    "PROFILES",
    "ClientOptions",
    "IncomingRequest",
    "Profile",
    "Route",
    "TransportOptions",
    "check_credential",
    "environment_of",
    "idempotent",
    "not_idempotent",
    "profile",
    "raise_for_status",
    "replayed",
]
