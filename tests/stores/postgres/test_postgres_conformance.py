"""The PostgreSQL store, judged by the suite that judges everybody's, on a real server."""

from __future__ import annotations

from onceward.testing.store_suite.suite import *  # noqa: F403
from servers.postgres import JUDGED, needed

needed()

STORES = (JUDGED,)
