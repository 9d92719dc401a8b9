"""The whole suite again, on a store behind a seal: what is sealed behaves as if it were not."""

from __future__ import annotations

import pytest
from sealed_stores import KIND

from onceward.testing.store_suite.candidates import Candidate
from onceward.testing.store_suite.suite import *  # noqa: F403

pytestmark = pytest.mark.dose(1, of="place")

STORES = (Candidate(kind=KIND, url="sqlite:///{tmp}/store.db"),)
