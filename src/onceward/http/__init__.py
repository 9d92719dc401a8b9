"""
HTTP, both ends. Each library is imported by its own module only.

    clients that carry the key                       servers that keep the promise
    onceward.http.httpx       Transport, client ...  onceward.http.asgi    IdempotencyMiddleware
    onceward.http.httpx2      the same               onceward.http.wsgi    IdempotencyMiddleware
    onceward.http.requests    Adapter
"""

from onceward.http.answers import raise_for_status, replayed
from onceward.http.carrying import KEY_HEADER, Carriage, ClientOptions
from onceward.http.credentials import check_credential, environment_of
from onceward.http.serving.discovering import idempotent, not_idempotent
from onceward.http.serving.profile import PROFILES, Profile, profile
from onceward.http.serving.reception import Incoming
from onceward.http.serving.routes import Route

__all__ = [
    "KEY_HEADER",
    "PROFILES",
    "Carriage",
    "ClientOptions",
    "Incoming",
    "Profile",
    "Route",
    "check_credential",
    "environment_of",
    "idempotent",
    "not_idempotent",
    "profile",
    "raise_for_status",
    "replayed",
]
