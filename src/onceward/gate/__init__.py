"""
The gate: where operations go through once. `Gate` blocks, `AsyncGate` awaits; both are shells over the same flows.
"""

from onceward.gate.awaiting import AsyncGate
from onceward.gate.blocking import Gate

__all__ = ["AsyncGate", "Gate"]
