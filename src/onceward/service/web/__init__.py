"""
From an HTTP request to a call, and from its result to a response: for every app of the service.

It finds the caller, reads the body strictly, turns every refusal into problem+json, and makes the OpenAPI document from
the table that routes requests. May import `access`, and no app of the service. Start with `endpoints.py`.
"""

from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, build_application
from onceward.service.web.openapi import openapi_document

__all__ = ["ApiCall", "ApiEndpoint", "Authenticator", "build_application", "openapi_document"]
