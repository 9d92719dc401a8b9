"""
Emitters: events come as they like, writes go out on a cadence of your own.

`Emitter` blocks and has a thread, `AsyncEmitter` awaits and has a task; `_core/spool.py` has what both go by.
"""

from onceward._core.spool import Cadence, Emitted, Item
from onceward.emitter.awaiting import AsyncEmitter
from onceward.emitter.blocking import Emitter
from onceward.emitter.delivery import Flushed

__all__ = ["AsyncEmitter", "Cadence", "Emitted", "Emitter", "Flushed", "Item"]
