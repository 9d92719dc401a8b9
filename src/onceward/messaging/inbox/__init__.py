"""
The inbox: webhooks received durably, answered at once, and processed once.

    shells       Inbox, AsyncInbox;  common: what both are made of
    source       who signs how; handlers: what is done about an event
    receiving    verify, write, answer;  numbering: gaps and rewinds
    processing   one event under the gate;  working: the threads
    events       the table's moves;  stored: sources that are rows;  samples: signed events to try it with
"""

from onceward.messaging.inbox.event_receiver import ReceivedEvent
from onceward.messaging.inbox.handlers import WebhookEvent, handler
from onceward.messaging.inbox.inbox import Inbox
from onceward.messaging.inbox.inbox_async import AsyncInbox
from onceward.messaging.inbox.source import Source

__all__ = ["AsyncInbox", "Inbox", "ReceivedEvent", "Source", "WebhookEvent", "handler"]
