"""
Tools for testing your code, and ours.

    clock            time that stands still until it is moved      store_suite   judges a store
    retry_switches   no waits, or no retries, in a test            http_suite    judges an HTTP API from outside
    proxy            a network that breaks on command              explorer      every interleaving and crash
    plugin           fixtures and a marker for pytest              simulator     what retries do to a system
    sandbox          clock, store and effects of one test          assert_once   every crash and duplicate of a function
    strategies       requests and schedules for Hypothesis

May import the library; never service, client or cli. Importing this package imports neither pytest nor, until a name
of it is used, anything else of ours: pytest loads the plugin in every run. Start reading with retry_switches.py and
clock.py.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.testing.retry_switches import no_sleeping, retries_off

__all__ = ["no_sleeping", "retries_off"]

if not TYPE_CHECKING:  # A type checker would take any name for one that this function finds.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from onceward.testing import retry_switches

        return getattr(retry_switches, name)
