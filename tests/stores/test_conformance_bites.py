"""A suite that never fails proves nothing: each deliberately broken store makes it fail, where it should."""

from __future__ import annotations

from pathlib import Path

import broken_shelves
import broken_stores
import pytest

from onceward.testing.store_suite import test_away

pytest_plugins = ["pytester"]

SUITE = "onceward.testing.store_suite"
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
    "driverskinds": ("test_put", "test_every_value_is_a_plain_one"),
    "halfwriting": ("test_failures", "test_a_cancelled_put_stands_whole_or_not_at_all"),
}


CUT = "test_cut_in_the_middle_nothing_that_was_answered_is_lost_and_nothing_lands_twice"
BACK = "test_the_same_handle_goes_on_when_it_is_back"
AWAY = "test_every_call_says_that_it_is_away"
END = "test_closing_it_then_is_fine_or_says_so"
EARLY = "test_opened_while_it_is_away_it_says_so"
SKEWED = "test_a_process_whose_clock_is_wrong_sees_and_writes_the_same"
RACES = (
    "test_each_key_has_one_winner_among_all_processes",
    "test_of_changes_from_one_version_one_lands_among_all_processes",
)

# The same, with every test of that part that fails: these passed once, because nobody tried a second handle, another
# process, a line that is cut, a clock that is wrong, or texts that look alike.
CAUGHT_BY_ALL = {
    "lockperprocess": ("test_processes", RACES),
    "leaking": ("test_away", (AWAY, BACK, CUT, EARLY)),
    "leakingattheend": ("test_away", (AWAY, END)),
    "leakingatthedoor": ("test_away", (EARLY,)),
    "lettingthrough": ("test_away", ("test_no_exception_of_a_driver_gets_out",)),
    "neverback": ("test_away", (BACK, CUT)),
    "answeringearly": ("test_away", (CUT,)),
    "clockoftheprocess": ("test_time", (SKEWED,)),
    "clockoftheenvironment": ("test_time", (SKEWED, "test_two_handles_with_clocks_of_their_own_agree")),
    "fenceinthehandle": ("test_fences", ("test_not_to_anybody_who_opens_the_store_afterwards",)),
    "alikeisthesame": (
        "test_text",
        ("test_kinds_that_look_alike_are_two", "test_scopes_that_look_alike_are_two"),
    ),
    "normalising": ("test_text", ("test_keys_that_look_alike_are_two", "test_scopes_that_look_alike_are_two")),
    "uncomparing": ("test_text", ("test_a_version_that_looks_alike_is_another",)),
    "remembering": (
        "test_handles",
        (
            "test_what_one_changes_the_other_reads",
            "test_what_one_has_erased_is_gone_for_the_other",
            "test_what_one_has_extended_or_shrunk_the_other_sees",
        ),
    ),
    "limitingfirst": ("test_scan", ("test_a_page_is_as_long_as_it_can_be",)),
    "purginglate": ("test_purge", ("test_what_is_claimed_meanwhile_is_left_alone",)),
    "committingforothers": ("test_joining", ("test_in_the_callers_own_transaction_the_caller_decides",)),
    "undoingforothers": ("test_joining", ("test_what_fails_there_undoes_only_itself",)),
    "notlooking": ("test_joining", ("test_a_function_that_commits_by_itself_is_found_out",)),
    "retainingbythecaller": ("test_time", (SKEWED,)),
    "settlingbythecaller": ("test_time", (SKEWED,)),
    "purgingbythecaller": ("test_time", (SKEWED,)),
    "extendingbythecaller": ("test_time", (SKEWED,)),
    "markingbythecaller": ("test_time", (SKEWED,)),
    "scanningbythecaller": ("test_time", (SKEWED,)),
    "oftheothercolour": ("test_capabilities", ("test_its_colour_is_the_one_it_was_opened_in",)),
}


def judged(pytester: pytest.Pytester, part: str, factory: str) -> tuple[int, set[str]]:
    """How many tests of a part of the suite passed on a store, and the names of those that failed."""
    pytester.syspathinsert(Path(__file__).parent)
    module = "broken_shelves" if factory in broken_shelves.CANDIDATES else "broken_stores"
    done = pytester.inline_run("--pyargs", part, "--store-factory", f"{module}:{factory}", *QUIET)
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


@pytest.mark.slow
@pytest.mark.parametrize(("factory", "caught_by"), CAUGHT_BY_ALL.items(), ids=CAUGHT_BY_ALL.keys())
@pytest.mark.dose(8)
def test_a_store_that_is_only_wrong_from_outside_is_caught(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, factory: str, caught_by: tuple[str, tuple[str, ...]]
) -> None:
    """
    By these tests of the part that is about it, and by no other; what has nothing to do with it passes.
    """
    part, tests = caught_by
    monkeypatch.setattr(test_away, "BACK_SECONDS_MAX", 0.1)  # For the one that never comes back.

    _, failed = judged(pytester, f"{SUITE}.{part}", factory)
    passed, beside = judged(pytester, f"{SUITE}.test_put", factory)

    assert set(tests) == failed
    assert (beside, passed > 0) == (set(), True)


def test_a_sound_store_passes_by_the_same_road(pytester: pytest.Pytester) -> None:
    """
    So that what fails above fails for what was broken, and not for how it was run.
    """
    passed, failed = judged(pytester, SUITE, "sound")

    assert failed == set()
    assert passed > 80


def test_every_broken_store_is_judged() -> None:
    """
    None is forgotten in the table above.
    """
    known = {*broken_stores.CANDIDATES, *broken_shelves.CANDIDATES}

    assert known == {"sound", "remote", "onaserver", *CAUGHT_BY, *CAUGHT_BY_ALL}


def test_a_sound_store_over_a_line_passes_by_the_same_road(pytester: pytest.Pytester) -> None:
    """
    Cut, restored and cut in the middle: what says that it is away, and goes on, is not at fault.
    """
    passed, failed = judged(pytester, f"{SUITE}.test_away", "remote")

    assert failed == set()
    assert passed > 8


@pytest.mark.slow
def test_a_sound_store_on_a_servers_clock_passes_by_the_same_road(pytester: pytest.Pytester) -> None:
    """
    What takes no time from its callers is not at fault.
    """
    passed, failed = judged(pytester, f"{SUITE}.test_time", "onaserver")

    assert failed == set()
    assert passed > 8


@pytest.mark.fault("a-store-without-a-second-handle-passes")
def test_a_function_that_opens_a_new_store_each_time_does_not_pass(pytester: pytest.Pytester) -> None:
    """
    With one handle nobody can tell whether two processes both win; and a store that other processes cannot open has
    to say so.
    """
    _, failed = judged(pytester, f"{SUITE}.test_processes", "function")
    _, fences = judged(pytester, f"{SUITE}.test_fences", "function")

    assert "test_each_key_has_one_winner_among_all_processes" in failed
    assert fences == {"test_not_to_anybody_who_opens_the_store_afterwards"}
