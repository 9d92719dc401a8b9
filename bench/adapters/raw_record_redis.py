"""
The limit of a fresh call on Redis: the row of a record and its indexes, by hand (see `raw_record.py`).

A claim is one script that finds what stands there or writes the row, its fence and its places in the indexes; a settle
is one that writes the row anew and moves it to what is due. Neither compares, checks or decides anything else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.adapters.batching import read_stored
from bench.adapters.raw_record import claim, settling
from bench.adapters.raw_redis import RawRedis
from bench.work import Request, Result, Work

_CLAIM = """
local found = redis.call('GET', KEYS[1])
if found then return found end
local now = redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], now[1] .. now[2])
redis.call('ZADD', KEYS[3], 0, 'i' .. KEYS[1])
redis.call('ZADD', KEYS[3], 0, 'o' .. KEYS[1])
"""
_SETTLE = """
local now = redis.call('TIME')
redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[3], 'o' .. KEYS[1])
redis.call('ZADD', KEYS[4], now[1] + 172800, KEYS[1])
redis.call('ZADD', KEYS[5], now[1] + 86400, KEYS[1])
"""
_INDEXES = ("shard", "names", "forget", "replay")
_RESULT = b"\0result:"


class RawRecordRedis(RawRedis):
    """Two scripts for a fresh operation, the first of them for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work, url)
        self._claim, self._settle = (self._client.script_load(script) for script in (_CLAIM, _SETTLE))

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        id, values = claim(key, request)
        row = _packed(values)
        found = self._client.evalsha(self._claim, 5, id, *_INDEXES, row)
        if found is not None:
            return read_stored(found.partition(_RESULT)[2])
        result = self._work.effect()
        *changed, kept, _ = settling(id, result)
        self._client.evalsha(self._settle, 5, id, *_INDEXES, row + _packed(changed) + _RESULT + kept)
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: only to be checked, never timed."""
        return self.fresh(key, request)

    areplay = afresh


def _packed(values: Any) -> bytes:
    return b"\0".join([one if isinstance(one, bytearray) else str(one).encode() for one in values])
