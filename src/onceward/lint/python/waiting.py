"""
Loops and functions that ask again until something is ready: that is no retry of what failed.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.names import PythonFile, calls_in, last_name, word_set
from onceward.lint.python.retry_places import within_loop

_WAITERS: Final = re.compile(r"(?:^|_)(?:wait|poll|polling|ready|health|healthy|until|alive|check|busy|being)(?:_|$)")
_ROUNDS: Final = re.compile(r"poll|poke|heartbeat|refresh|^(?!.*retr).*interval")
_CLOCK: Final = re.compile(r"(?:^|[.?])(?:time|monotonic|perf_counter|now|utcnow)$")
_STATES: Final = word_set(
    "running pending queued processing in_progress inprogress completed complete done finished succeeded ready active"
)


def is_poll(file: PythonFile, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """
    Whether a loop asks again until something is ready, and not because something failed: its function says so
    (`wait_for_port`), its test reads a clock, its pause is called `poll_interval`, or it compares with `"running"`.
    """
    if names_waiter(getattr(file.function_of(loop), "name", "")):
        return True
    pauses = [call.args[0] for call in calls_in(loop) if call.args and file.dotted(call.func).endswith(".sleep")]
    if any(_ROUNDS.search(words_of(last_name(one))) for one in pauses):
        return True
    if isinstance(loop, ast.While) and any(_CLOCK.search(file.dotted(call.func)) for call in calls_in(loop.test)):
        return True
    for node in within_loop(loop):
        for one in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            texts = {leaf.value for leaf in ast.walk(one) if isinstance(leaf, ast.Constant)}
            if any(isinstance(text, str) and text.lower() in _STATES for text in texts):
                return True
    return False


def names_waiter(name: str) -> bool:
    """Whether a function of this name waits for something to be ready, or looks whether it is."""
    return bool(_WAITERS.search(words_of(name)))
