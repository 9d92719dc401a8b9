"""
What a model reads instead of a result: that a call was not made now, why, and what it can do about it.

A model does what it reads. None of these texts invites it to make the call again, because the call may have happened;
each says what stands, and where to look. What a person needs (digest, fence, the command) is in the record and the log.
"""

from __future__ import annotations

from typing import NamedTuple

from onceward._core.errors import NothingHappened, OncewardError
from onceward.agents.framework import FailedResult
from onceward.agents.tools import Tool

_LOOK = "Check with {check} whether it happened"
_LOOK_SOMEHOW = "Check by other means whether it happened"

_TEXTS = {
    "in_doubt": "'{tool}' may already have happened: an earlier attempt was interrupted, and its outcome is unknown. "
    "It was not run now, and will not run until a person has decided. {look}, or report this to the user.",
    "store_forgot": "'{tool}' may already have happened: the record of an earlier attempt was lost. It was not run "
    "now. {look}, or report this to the user.",
    "in_flight": "'{tool}' with these arguments is being done right now by another worker. Nothing new was "
    "started. Continue with something else, or report that it is in progress.",
    "ownership_lost": "'{tool}' took longer than allowed, and another worker has taken over. It may have happened. "
    "{look}, or report this to the user.",
    "key_reused": "'{tool}' was called before with the same key and different arguments, but a key stands "
    "for one request. Nothing was done now. Look at what was done before; if it must be changed, report that to the "
    "user.",
    "expired": "'{tool}' was done before, and its result is no longer stored. It was not done now. Look up its state.",
    "not_replayable": "'{tool}' was done before, and its result was not stored. It was not done now. Look up its "
    "state.",
    "recorded_failure": "'{tool}' was tried before and failed ({error}). It was not run now.",
    "circuit_open": "'{tool}' was not run: the service behind it is failing, and is not called for a while. Nothing "
    "was done. Continue without it, or report this to the user.",
    "budget_exhausted": "'{tool}' was not run: too many of its calls have failed. Nothing was done. Continue without "
    "it, or report this to the user.",
    "deadline_exceeded": "'{tool}' was not run: there is no time left for it. Nothing was done. Report this to the "
    "user.",
    "spend_exhausted": "'{tool}' was not run: this work may spend no more ({error}). What was done before stands. "
    "Finish without it, or report this to the user.",
    "request_invalid": "'{tool}' was not run: its arguments are not plain data ({error}). Nothing was done.",
}
"""By the code of a refusal. A refusal with another code is a matter for the programmer, and is raised."""

_FAILED_IN_DOUBT = (
    "'{tool}' failed ({error}), but may have happened. It will not run until a person has decided. "
    "{look}, or report this to the user."
)
_FAILED_AND_UNKNOWN = "'{tool}' failed ({error}), but may have happened. {look}, or report this to the user."
"""Of what may run again, such as a repeatable tool: it is not in doubt, and nobody knows whether it took place."""
_FAILED = "'{tool}' failed ({error}), and had no effect."
_TIMED_OUT = (
    "'{tool}' took longer than allowed, and may have happened or still happen ({error}). It was not ended. "
    "{look}, or report this to the user."
)
_NOT_RUN = "'{tool}' was not run: {error}. Nothing was done."

_OPENINGS = tuple(
    text.removeprefix("'{tool}'").partition("{")[0]
    for text in (*_TEXTS.values(), _FAILED_IN_DOUBT, _FAILED, _TIMED_OUT, _NOT_RUN)
)
"""How these texts go on after the tool's name, for knowing them again."""

ERROR_CHARACTERS = 300


class ForModel(NamedTuple):
    """Words for the model, in the place of a result."""

    text: str
    error: BaseException
    """Why: one of ours if nothing was run now, otherwise what the tool raised or reported."""
    ran: bool = False
    """Whether the tool was run now."""
    in_doubt: bool = True
    """Whether it may have happened."""

    @property
    def code(self) -> str:
        """One word for programs: the refusal's code, or `tool_failed`."""
        return self.error.code if isinstance(self.error, OncewardError) and not self.ran else "tool_failed"


def refusal_text(name: str, tool: Tool, error: OncewardError) -> str | None:
    """What a model reads about a refusal of ours; None if this is nothing for a model."""
    text = _TEXTS.get(error.code)
    return None if text is None else _filled(text, name, tool, error)


def failure_text(name: str, tool: Tool, error: BaseException, *, in_doubt: bool) -> str:
    """What a model reads about a call that raised, or whose framework reported an error."""
    unknown = tool.kind in ("repeatable", "keyed") and not isinstance(error, NothingHappened)
    text = _FAILED_IN_DOUBT if in_doubt else _FAILED_AND_UNKNOWN if unknown else _FAILED
    return _filled(text, name, tool, error)


def timed_out_text(name: str, tool: Tool, error: BaseException) -> str:
    """What a model reads about a call that the framework stopped waiting for."""
    return _filled(_TIMED_OUT, name, tool, error)


def not_run_text(name: str, reason: str) -> str:
    """What a model reads about a call that cannot be made: no such tool, or arguments that are none."""
    return _NOT_RUN.format(tool=name, error=reason[:ERROR_CHARACTERS])


def is_text_for_model(name: str, text: object) -> bool:
    """
    Whether this is one of these texts about this tool, read again from a stored history.

    For frameworks whose history has nothing but a text where a result should be: such a call came to no answer.
    """
    start = f"'{name}'"
    return isinstance(text, str) and text.startswith(start) and text[len(start) :].startswith(_OPENINGS)


def _filled(text: str, name: str, tool: Tool, error: BaseException) -> str:
    look = _LOOK_SOMEHOW if tool.check is None else _LOOK.format(check=tool.check)
    return text.format(tool=name, look=look, error=_shown(error))


def _shown(error: BaseException) -> str:
    said = " ".join(str(error).split())
    kind = type(error).__name__
    if isinstance(error, OncewardError | FailedResult) and said:  # Words of its own; the class would add nothing.
        return said[:ERROR_CHARACTERS]
    return f"{kind}: {said[:ERROR_CHARACTERS]}" if said else kind
