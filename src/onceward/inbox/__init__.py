"""
The inbox: webhooks received durably, answered at once, and processed once.

    shells       Inbox, AsyncInbox;  common: what both are made of
    source       who signs how; handlers: what is done about an event
    receiving    verify, write, answer;  numbering: gaps and rewinds
    processing   one event under the gate;  working: the threads
    events       the table's moves;  stored: sources that are rows;  samples: signed events to try it with
"""

from onceward.inbox.handlers import Event, handler
from onceward.inbox.receiving import Received
from onceward.inbox.shells import Inbox
from onceward.inbox.shells_async import AsyncInbox
from onceward.inbox.source import Source

__all__ = ["AsyncInbox", "Event", "Inbox", "Received", "Source", "handler"]
