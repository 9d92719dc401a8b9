"""A suite that never fails proves nothing: each deliberately broken store makes it fail, where it should."""

from __future__ import annotations

from pathlib import Path

import broken_stores
import pytest

pytest_plugins = ["pytester"]

SUITE = "onceward.testing.conformance"
QUIET = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=no", "-q")

# Broken store -> the part of the suite that is about what was broken, and the test in it that must fail.
CAUGHT_BY = {
    "upserting": ("test_put", "test_a_second_put_is_refused_and_shown_what_stands"),
    "tokencomparing": ("test_put", "test_of_two_changes_from_the_same_start_only_the_first_lands"),
    "fingerprintdropping": ("test_put", "test_the_fingerprint_survives_every_move"),
    "unfenced": ("test_fences", "test_a_fence_is_never_below_the_stores_clock"),
    "fenceforgetting": ("test_fences", "test_not_even_if_the_clock_is_set_back"),
    "overpurging": ("test_purge", "test_claimed_and_in_doubt_records_are_never_touched"),
    "resurrecting": ("test_put_back", "test_a_mark_keeps_it_from_landing"),
    "lookingformarksfirst": ("test_put_back", "test_whoever_marks_and_then_erases_leaves_nothing"),
    "fenceerasing": ("test_put_back", "test_a_fence_that_was_erased_is_not_given_again"),
    "stale": ("test_races", "test_of_many_changes_from_one_version_one_lands"),
    "callersclock": ("test_time", "test_less_is_left_as_time_passes_and_age_grows"),
    "batchlosing": ("test_races", "test_many_keys_at_once_all_land_with_their_own_data"),
    "checkingfirst": ("test_races", "test_of_many_claims_of_one_key_one_lands"),
    "driversown": ("test_failures", "test_it_works_or_says_that_it_is_away"),
    "halfwriting": ("test_failures", "test_a_cancelled_put_stands_whole_or_not_at_all"),
}


def judged(pytester: pytest.Pytester, part: str, factory: str) -> tuple[int, set[str]]:
    """How many tests of a part of the suite passed on a store, and the names of those that failed."""
    pytester.syspathinsert(Path(__file__).parent)
    done = pytester.inline_run("--pyargs", part, "--store-factory", f"broken_stores:{factory}", *QUIET)
    passed, _, failed = done.listoutcomes()
    return len(passed), {report.nodeid.rpartition("::")[2].partition("[")[0] for report in failed}


@pytest.mark.parametrize(("factory", "caught_by"), CAUGHT_BY.items(), ids=CAUGHT_BY.keys())
def test_a_broken_store_is_caught(pytester: pytest.Pytester, factory: str, caught_by: tuple[str, str]) -> None:
    """
    The suite fails on it, in the test that is about what was broken, and not in every test.
    """
    part, test = caught_by

    passed, failed = judged(pytester, f"{SUITE}.{part}", factory)

    assert test in failed
    assert passed > 0


def test_a_sound_store_passes_by_the_same_road(pytester: pytest.Pytester) -> None:
    """
    So that what fails above fails for what was broken, and not for how it was run.
    """
    passed, failed = judged(pytester, SUITE, "sound")

    assert set() == failed
    assert passed > 80


def test_every_broken_store_is_judged() -> None:
    """
    None is forgotten in the table above.
    """
    assert {"sound", *CAUGHT_BY} == set(broken_stores.FACTORIES)
