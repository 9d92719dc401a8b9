"""
HTTP, both ends. Each library is imported by its own module only.

    clients that carry the key                       servers that keep the promise
    onceward.http.httpx       Transport, client ...  onceward.http.asgi    IdempotencyMiddleware
    onceward.http.httpx2      the same               onceward.http.wsgi    IdempotencyMiddleware
    onceward.http.requests    Adapter
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
