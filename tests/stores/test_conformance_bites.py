"""A suite that never fails proves nothing: each deliberately broken store makes it fail, where it should."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

QUIET = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=no", "-q")

CAUGHT_BY = {
    "upserting": "test_a_second_put_is_refused_and_shown_what_stands",
    "tokencomparing": "test_of_two_changes_from_the_same_start_only_the_first_lands",
    "fingerprintdropping": "test_the_fingerprint_survives_every_move",
    "unfenced": "test_a_fence_is_never_below_the_stores_clock",
    "fenceforgetting": "test_not_even_if_the_clock_is_set_back",
    "overpurging": "test_claimed_and_in_doubt_records_are_never_touched",
    "stale": "test_of_many_changes_from_one_version_one_lands",
    "callersclock": "test_less_is_left_as_time_passes_and_age_grows",
    "batchlosing": "test_many_keys_at_once_all_land_with_their_own_data",
    "checkingfirst": "test_of_many_claims_of_one_key_one_lands",
    "driversown": "test_it_works_or_says_that_it_is_away",
    "halfwriting": "test_a_cancelled_put_stands_whole_or_not_at_all",
}


def judged(pytester: pytest.Pytester, factory: str) -> tuple[int, set[str]]:
    """How many tests of the suite passed on a store, and the names of those that failed."""
    pytester.syspathinsert(pytest.__file__ and __file__.rpartition("/")[0])
    arguments = ("--pyargs", "onceward.testing.conformance", "--store-factory", f"broken_stores:{factory}")
    passed, _, failed = pytester.inline_run(*arguments, *QUIET).listoutcomes()
    return len(passed), {report.nodeid.rpartition("::")[2].partition("[")[0] for report in failed}


@pytest.mark.parametrize(("factory", "test"), CAUGHT_BY.items(), ids=CAUGHT_BY.keys())
def test_a_broken_store_is_caught(pytester: pytest.Pytester, factory: str, test: str) -> None:
    """
    The suite fails on it, in the test that is about what was broken.
    """
    passed, failed = judged(pytester, factory)

    assert test in failed
    assert passed > 0


def test_a_sound_store_passes_by_the_same_road(pytester: pytest.Pytester) -> None:
    """
    So that what fails above fails for what was broken, and not for how it was run.
    """
    passed, failed = judged(pytester, "sound")

    assert set() == failed
    assert passed > 80


def test_every_broken_store_is_judged() -> None:
    """
    None is forgotten in the table above.
    """
    import broken_stores

    built = {name for name, thing in vars(broken_stores).items() if getattr(thing, "__name__", "").lower() == name}
    assert CAUGHT_BY.keys() | {"sound"} == built - {"asyncio", "time"}
