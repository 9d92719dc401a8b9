"""
How a call becomes an answer, for every app of the service: who is calling, a strict body, a problem for every refusal,
and an OpenAPI document made of the same table that routes requests.
"""

from onceward.service.web.calls import ApiCall, Authenticator
from onceward.service.web.endpoints import ApiEndpoint, build_application
from onceward.service.web.openapi import openapi_document

__all__ = ["ApiCall", "ApiEndpoint", "Authenticator", "build_application", "openapi_document"]
