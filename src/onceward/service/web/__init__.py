"""
How a call becomes an answer, for every app of the service: who is calling, a strict body, a problem for every refusal,
and an OpenAPI document made of the same table that routes requests.
"""

from onceward.service.web.calls import Call, Door
from onceward.service.web.endpoints import Endpoint, application
from onceward.service.web.openapi import openapi

__all__ = ["Call", "Door", "Endpoint", "application", "openapi"]
