"""The pytest plug-in: there when the suite is run, and out of the way of everybody else's tests."""

from __future__ import annotations

from typing import Any

import pytest

from onceward.retry.retry_switch import SWITCH

pytest_plugins = ["pytester"]

QUIET = ("-p", "no:randomly", "-p", "no:xdist", "-p", "no:cacheprovider")


def test_other_peoples_tests_may_have_a_store_option_of_their_own(pytester: pytest.Pytester) -> None:
    """
    Merely having Onceward installed takes no option and no fixture away from anybody.
    """
    pytester.makeconftest(
        """
        import pytest
        def pytest_addoption(parser):
            parser.addoption("--store")
        @pytest.fixture
        def theirs(request):
            return request.config.getoption("--store")
        """
    )
    pytester.makepyfile("def test_it(theirs): assert theirs == 'grocery'")

    pytester.inline_run("--store", "grocery", *QUIET).assertoutcome(passed=1)


def test_no_fixture_is_added_to_other_peoples_tests(pytester: pytest.Pytester) -> None:
    """
    `store`, `clock` and `do` are good names, and theirs.
    """
    pytester.makepyfile("def test_it(store): pass")

    result = pytester.runpytest_inprocess(*QUIET)

    result.stdout.fnmatch_lines(["*fixture 'store' not found*"])


def test_a_module_that_imports_the_suite_says_which_stores(pytester: pytest.Pytester) -> None:
    """
    By URL or by a function, and no option is needed.
    """
    pytester.makepyfile(
        """
        from onceward.stores.memory import MemoryStore
        from onceward.testing.store_suite.suite import *

        def mine(colour, environment):
            return MemoryStore(environment=environment) if colour == "blocking" else None

        STORES = ("memory://", mine)
        """
    )

    pytester.inline_run("-k", "TestScan", *QUIET).assertoutcome(passed=18, skipped=6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say which store to judge"),
        (("--store-factory", "no_colon"), "module:name"),
        (("--store", "sqlit://"), "did you mean sqlite://?"),
    ],
)
def test_a_mistake_is_explained(pytester: pytest.Pytester, options: tuple[str, ...], words: str) -> None:
    """
    In one sentence that says what to type.
    """
    suite = ("--pyargs", "onceward.testing.store_suite.test_scan")

    result = pytester.runpytest_inprocess(*suite, *options, *QUIET, "--tb=line")

    assert words in result.stdout.str() + result.stderr.str()


def test_several_stores_are_judged_in_one_run(pytester: pytest.Pytester) -> None:
    """
    Separated by commas or given again.
    """
    suite = ("--pyargs", "onceward.testing.store_suite.test_scan", "-k", "only_the_selected")
    stores = ("--store", "memory://,memory://{fresh}", "--store", "sqlite:///{tmp}/other.db")

    pytester.inline_run(*suite, *stores, *QUIET).assertoutcome(passed=6)


CALLS = """
from onceward import Retry
from onceward.runtime.environment import Environment

class Clock(Environment):
    slept = 0
    def sleep(self, seconds):
        self.slept += 1

def test_calls():
    clock, calls = Clock(), []
    def fails():
        calls.append(1)
        raise ConnectionRefusedError
    try:
        Retry(environment=clock).call(fails)
    except ConnectionRefusedError:
        pass
    assert (len(calls), clock.slept) == {expected}
"""


@pytest.mark.parametrize(
    ("setting", "expected"), [("on", (3, 2)), ("no-sleep", (3, 0)), ("off", (1, 0)), (None, (3, 2))]
)
def test_a_setting_turns_the_retries_of_a_run(pytester: pytest.Pytester, setting: str | None, expected: Any) -> None:
    """
    One line in the settings: no waits, or no retries; and when the run is over, all is as before.
    """
    if setting is not None:
        pytester.makeini(f"[pytest]\nonceward_retries = {setting}\n")
    pytester.makepyfile(CALLS.replace("{expected}", repr(expected)))

    pytester.inline_run(*QUIET).assertoutcome(passed=1)
    assert (SWITCH.retries_off, SWITCH.no_sleeping) == (0, 0)


def test_a_setting_that_is_none_is_refused(pytester: pytest.Pytester) -> None:
    """
    And nothing is run.
    """
    pytester.makeini("[pytest]\nonceward_retries = never\n")
    pytester.makepyfile("def test_nothing(): pass")

    done = pytester.runpytest_inprocess(*QUIET)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*onceward_retries is 'never'; set it to on, no-sleep or off*"])


def test_a_run_that_uses_nothing_of_it_imports_nothing_of_ours(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It is loaded in everybody's runs: an empty test must not wait for the library.
    """
    pytester.makepyfile(
        """
        import sys

        def test_it():
            assert sorted(name for name in sys.modules if name.partition(".")[0] == "onceward") == [
                "onceward", "onceward.testing", "onceward.testing.plugin"
            ]
        """
    )
    # Without this, pytest would load what is installed besides; the plugin itself is named.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    pytester.runpytest_subprocess("-p", "onceward.testing.plugin", "-p", "no:cacheprovider").assert_outcomes(passed=1)
