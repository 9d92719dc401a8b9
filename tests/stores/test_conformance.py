"""Our own stores, judged by the suite that judges everybody's."""

from __future__ import annotations

import pytest

from onceward.testing.store_suite.suite import *  # noqa: F403
from onceward.testing.store_suite.suite import TestACallersClock, TestDisciplines, TestReplaying

pytestmark = pytest.mark.dose(2, of="place")

STORES = ("memory://", "sqlite://")

# The suite is for everybody, so it does not know the numbers of our requirements. These tests of it prove some.
for _number, _test in (
    ("B11", TestReplaying.test_any_text_may_be_a_key),
    ("B12", TestReplaying.test_the_same_key_of_two_scopes_is_two_operations),
    ("E35", TestACallersClock.test_it_plays_no_role),
    ("E36", TestDisciplines.test_the_record_commits_with_the_effect_or_the_store_says_that_it_cannot),
    ("E36", TestDisciplines.test_the_constraint_is_the_arbiter),
    ("E36", TestDisciplines.test_a_violation_is_handled),
    ("E36", TestDisciplines.test_retention_is_agreed_and_kept),
    ("E19", TestDisciplines.test_a_violation_is_handled),
):
    pytest.mark.requirement(_number)(_test)
pytest.mark.fault("an-expired-answer-replays")(TestDisciplines.test_retention_is_agreed_and_kept)
