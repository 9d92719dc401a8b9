"""
Endpoints, to which the relay delivers: webhooks, mail servers, functions.

    http_endpoint        HttpEndpoint: a signed POST, to checked addresses only
    smtp_endpoint        SmtpEndpoint: a mail, under the same Message-ID on every try
    callable_endpoint    CallableEndpoint: f(message), plain or async
    endpoint_config      endpoints_from: the tables [endpoints.NAME]

An endpoint tries once and returns the outcome; the relay decides when to try again. May import: _core, runtime, gate,
webhooks, outbox.message. Start reading with `http_endpoint.py`.
"""

from onceward.messaging.outbox.delivery.callable_endpoint import CallableEndpoint
from onceward.messaging.outbox.delivery.endpoint_config import endpoints_from
from onceward.messaging.outbox.delivery.http_endpoint import HttpEndpoint
from onceward.messaging.outbox.delivery.smtp_endpoint import SmtpEndpoint

__all__ = ["CallableEndpoint", "HttpEndpoint", "SmtpEndpoint", "endpoints_from"]
