"""The Redis store, judged by the suite that judges everybody's, on a real server that keeps everything."""

from __future__ import annotations

import pytest

from onceward.testing.store_suite.suite import *  # noqa: F403
from servers.redis import PRIVATE, needed

pytestmark = pytest.mark.dose(1, of="place")

needed()

STORES = (PRIVATE,)
