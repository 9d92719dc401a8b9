"""
The emitter: takes items one by one, stores them, and sends them in batches on a cadence.

`Emitter` blocks and has a thread, `AsyncEmitter` awaits and has a task; the rules of both are in `_core/spool.py`.
May import: _core, runtime, gate, retry. Start reading with `emitter_async.py`.
"""

from onceward._core.spool import Cadence, Emitted, Item
from onceward.messaging.emitter.batch_delivery import Flushed
from onceward.messaging.emitter.emitter import Emitter
from onceward.messaging.emitter.emitter_async import AsyncEmitter

__all__ = ["AsyncEmitter", "Cadence", "Emitted", "Emitter", "Flushed", "Item"]
