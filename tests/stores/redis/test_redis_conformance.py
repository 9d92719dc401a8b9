"""The Redis store, judged by the suite that judges everybody's, on a real server that keeps everything."""

from __future__ import annotations

from onceward.testing.store_suite.suite import *  # noqa: F403
from servers.redis import PRIVATE, needed

needed()

STORES = (PRIVATE,)
