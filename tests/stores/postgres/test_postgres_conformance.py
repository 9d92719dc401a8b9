"""The PostgreSQL store, judged by the suite that judges everybody's, on a real server."""

from __future__ import annotations

import pytest

from onceward.testing.store_suite.suite import *  # noqa: F403
from onceward.testing.store_suite.suite import TestPuttingBack
from servers.postgres import JUDGED, needed

pytestmark = pytest.mark.dose(1, of="place")

needed()

STORES = (JUDGED,)

pytest.mark.fault("a-mark-shows-a-record-in-part")(TestPuttingBack.test_with_a_mark_what_stands_there_is_shown_whole)
