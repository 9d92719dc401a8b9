"""For our users' tests as much as for ours."""

from onceward.testing.retry_switches import no_sleeping, retries_off

__all__ = ["no_sleeping", "retries_off"]
