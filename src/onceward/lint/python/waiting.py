"""
Loops and functions that ask again until something is ready: that is no retry of what failed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.names import PythonFile, calls_in, last_name, walk_here, word_set
from onceward.lint.python.retry_places import within_loop

_WAITERS: Final = re.compile(r"(?:^|_)(?:wait|poll|polling|ready|health|healthy|until|alive|check|busy|being)(?:_|$)")
_ROUNDS: Final = re.compile(r"poll|poke|heartbeat|refresh|^(?!.*retr).*interval")
_CLOCK: Final = re.compile(r"(?:^|[.?])(?:time|monotonic|perf_counter|now|utcnow)$")
_STILL: Final = re.compile(
    r"\b(?:in progress|not (?:yet )?ready|still (?:running|starting|pending|being)|not (?:[\w-]+ ){0,4}yet)\b", re.I
)
"""What the other side says while it is at work, in the middle of a sentence."""
_OWN_PLACE: Final = re.compile(
    r"(?:^|_)(?:create|ensure|set_?up|init)_(?:\w+_)?(?:index|indexes|indices|collection|table|database|schema|bucket)(?:_|$)"
)
"""Functions that make a place of one's own to put things into: once, and not by a crowd."""
NAME_MAX: Final = 100
"""Characters of a name that are looked at: no person writes longer ones."""
_STATES: Final = word_set(
    "running pending queued processing in_progress inprogress completed complete done finished succeeded ready active"
)


def is_poll(file: PythonFile, loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """
    Whether a loop asks again until something is ready, and not because something failed: its function says so
    (`wait_for_port`), its test reads a clock, its pause is called `poll_interval`, it compares with `"running"`, or
    goes on while a text says "in progress".
    """
    if names_waiter(getattr(file.function_of(loop), "name", "")):
        return True
    pauses = [call.args[0] for call in calls_in(loop) if call.args and file.dotted(call.func).endswith(".sleep")]
    if any(_ROUNDS.search(words_of(last_name(one))) for one in pauses):
        return True
    if isinstance(loop, ast.While) and any(_CLOCK.search(file.dotted(call.func)) for call in calls_in(loop.test)):
        return True
    if any(isinstance(one, ast.Raise) and any(map(_says_still, ast.walk(one))) for one in _around(file, loop)):
        return True
    for node in within_loop(loop):
        if isinstance(node, ast.If) and any(_says_still(leaf) for leaf in ast.walk(node.test)):
            return True
        for one in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            texts = {leaf.value for leaf in ast.walk(one) if isinstance(leaf, ast.Constant)}
            if any(isinstance(text, str) and text.lower() in _STATES for text in texts):
                return True
    return False


def _around(file: PythonFile, loop: ast.AST) -> Iterator[ast.AST]:
    """What stands in the loop and behind it, where it says why it gave up."""
    function = file.function_of(loop)
    return walk_here(function if function is not None else loop)


def names_waiter(name: str) -> bool:
    """Whether a function of this name waits for something to be ready, looks whether it is, or makes it."""
    words = words_of(name[:NAME_MAX])
    return bool(_WAITERS.search(words) or _OWN_PLACE.search(words))


def _says_still(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_STILL.search(node.value))
