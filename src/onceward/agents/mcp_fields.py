"""
What Onceward adds to the `_meta` of MCP messages: the protocol leaves no other place that survives a retry.
"""

from __future__ import annotations

from typing import Final

KEY: Final = "dev.onceward/key"
"""In a request: the key of the call, as its client chose it."""
REPLAYED: Final = "dev.onceward/replayed"
"""In a result: true if it is the answer to an earlier call."""
CODE: Final = "dev.onceward/code"
"""In a result that refuses: why, in one word for programs."""
