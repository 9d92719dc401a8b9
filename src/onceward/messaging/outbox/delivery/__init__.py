"""
Where the relay delivers to: webhooks, mail servers, functions.

    webhook       HttpEndpoint: a signed POST, to checked addresses only
    smtp          SmtpEndpoint: a mail under a Message-ID that stays
    functions     CallableEndpoint: f(message), plain or async
    configuring   endpoints_from: the tables [endpoints.NAME]

An endpoint tries once and says what came of it. When to try again is the relay's business.
"""

from onceward.messaging.outbox.delivery.callable_endpoint import CallableEndpoint
from onceward.messaging.outbox.delivery.endpoint_config import endpoints_from
from onceward.messaging.outbox.delivery.http_endpoint import HttpEndpoint
from onceward.messaging.outbox.delivery.smtp_endpoint import SmtpEndpoint

__all__ = ["CallableEndpoint", "HttpEndpoint", "SmtpEndpoint", "endpoints_from"]
