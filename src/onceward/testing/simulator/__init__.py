"""
Simulations of what retries do to a system: `onceward simulate jitter|policy|collapse|storm`.

Time is simulated, chance is seeded, and what decides is the project's own code: the waits come from
`_core/backoff.py`, the budgets from `_core/token_bucket.py`, the breakers from `_core/circuit.py`. A simulation is a
function from a seed to a `SimulationReport`: tables, plots, and findings that hold or do not.
"""

from __future__ import annotations

from onceward.testing.simulator.collapse import simulate_collapse
from onceward.testing.simulator.jitter import simulate_jitter
from onceward.testing.simulator.policy import simulate_policy
from onceward.testing.simulator.report import SimulationReport
from onceward.testing.simulator.storm import simulate_storm

__all__ = ["SimulationReport", "simulate_collapse", "simulate_jitter", "simulate_policy", "simulate_storm"]
