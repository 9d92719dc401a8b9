"""
The gate: where operations go through once. `Gate` blocks, `AsyncGate` awaits; both are shells over the same flows.
"""

from onceward.gate.gate import Gate
from onceward.gate.gate_async import AsyncGate

__all__ = ["AsyncGate", "Gate"]
