"""
Simulations of what retries do to a system: `onceward simulate jitter|policy|collapse|storm`.

Time is simulated, chance is seeded, and what decides is the project's own code: the waits come from
`_core/backoff.py`, the budgets from `_core/budget.py`, the breakers from `_core/breaker.py`. A simulation is a function
from a seed to a `Report`: tables, plots, and findings that hold or do not.
"""

from __future__ import annotations

from onceward.simulate.collapse import simulate_collapse
from onceward.simulate.jitter import simulate_jitter
from onceward.simulate.policy import simulate_policy
from onceward.simulate.report import Report
from onceward.simulate.storm import simulate_storm

__all__ = ["Report", "simulate_collapse", "simulate_jitter", "simulate_policy", "simulate_storm"]
