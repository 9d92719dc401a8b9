"""
The pytest plugin that comes with the package: the switch for retries, and the options of the store suite.

    [pytest]
    onceward_retries = no-sleep

    pytest --pyargs onceward.testing.store_suite --store sqlite://
    pytest --pyargs onceward.testing.store_suite --store-factory my_package.testing:CANDIDATE

pytest loads it in every run where Onceward is installed. So it imports nothing of ours until a setting or option of it
is used, defines no fixture, and adds its options only to a run that names the suite: your own tests may want `--store`.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

SUITE = "onceward.testing.store_suite"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one setting that every run may have."""
    parser.addini(
        "onceward_retries",
        "what Onceward's policies do in this run: on (the default), no-sleep (no waits), off (one attempt)",
        default="on",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Turn the switch for the whole run, and back at its end."""
    chosen = str(config.getini("onceward_retries")).strip()
    if chosen == "on":
        return
    from onceward.testing.retry_switches import no_sleeping, retries_off

    switches = {"no-sleep": no_sleeping, "off": retries_off}
    if chosen not in switches:
        raise pytest.UsageError(f"onceward_retries is {chosen[:40]!r}; set it to on, no-sleep or off")
    exits = ExitStack()
    exits.enter_context(switches[chosen]())
    config.add_cleanup(exits.close)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser, args: list[str]) -> None:
    """Add the suite's options, before pytest reads its command line in earnest."""
    if not any(SUITE in argument.replace("/", ".").replace("\\", ".") for argument in args):
        return
    group = parser.getgroup("onceward", "Onceward's conformance suite for stores")
    group.addoption(
        "--store",
        action="append",
        default=[],
        metavar="URL",
        help="a store to judge, by URL (repeat it, or separate by commas). {tmp} becomes a new folder and {fresh} a "
        "new name for every test; sqlite:// alone means sqlite:///{tmp}/store.db",
    )
    group.addoption(
        "--store-factory",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a store to judge, by a Candidate (onceward.testing.store_suite): its kind, what to open, how the line to "
        "it is cut. A function (colour, environment) -> store is taken, too, but opens a new store at every call, and "
        "fails the tests that need a second handle",
    )
