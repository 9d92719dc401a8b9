"""
Emitters: events come as they like, writes go out on a cadence of your own.

`Emitter` blocks and has a thread, `AsyncEmitter` awaits and has a task; `_core/spool.py` has what both go by.
"""

from onceward._core.spool import Cadence, Emitted, Item
from onceward.messaging.emitter.batch_delivery import Flushed
from onceward.messaging.emitter.emitter import Emitter
from onceward.messaging.emitter.emitter_async import AsyncEmitter

__all__ = ["AsyncEmitter", "Cadence", "Emitted", "Emitter", "Flushed", "Item"]
