"""
The inbox: webhooks are stored when they arrive, acknowledged at once, and processed once.

    inbox_async, inbox_base    `Inbox` and `AsyncInbox`
    source, stored_sources     who sends, and how it signs: in code, or as rows of a table
    event_receiver             verify, store, respond. Start reading here
    event_numbers              gaps and rewinds in a source's numbers
    event_processor, handlers  one event under the gate, and the function that processes it
    workers                    the threads
    event_table                the SQL
    sample_event               a signed event to try a source with

May import: _core, runtime, stores, gate, http, webhooks.
"""

from onceward.messaging.inbox.event_receiver import ReceivedEvent
from onceward.messaging.inbox.handlers import WebhookEvent, handler
from onceward.messaging.inbox.inbox import Inbox
from onceward.messaging.inbox.inbox_async import AsyncInbox
from onceward.messaging.inbox.source import Source

__all__ = ["AsyncInbox", "Inbox", "ReceivedEvent", "Source", "WebhookEvent", "handler"]
