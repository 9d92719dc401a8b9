"""
Where the relay delivers to: webhooks, mail servers, functions.

    webhook       HttpEndpoint: a signed POST, to checked addresses only
    smtp          SmtpEndpoint: a mail under a Message-ID that stays
    functions     CallableEndpoint: f(message), plain or async
    configuring   endpoints_from: the tables [endpoints.NAME]

An endpoint tries once and says what came of it. When to try again is the relay's business.
"""

from onceward.outbox.delivery.configuring import endpoints_from
from onceward.outbox.delivery.functions import CallableEndpoint
from onceward.outbox.delivery.smtp import SmtpEndpoint
from onceward.outbox.delivery.webhook import HttpEndpoint

__all__ = ["CallableEndpoint", "HttpEndpoint", "SmtpEndpoint", "endpoints_from"]
