"""
Dead letters of HTTP requests: who sends one again, and when that is allowed.

Our own clients record what they sent, so these letters need no handler: a sender is registered once for an address, and
a requeue sends the same bytes under the same key. A credential goes only to the address that its sender is registered
for, whatever the stored request says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from onceward._core.dead_letters import DeadLetter
from onceward._core.errors import ConfigurationError, OutcomeUnknown
from onceward._core.sent_request import SentRequest, origin_of, sent_request_of
from onceward.gate.dead_letter_handlers import CallArguments, RequeueHandler, make_requeue_handler

RequestSender: TypeAlias = Callable[[SentRequest], Any]
"""Sends a request once and returns the response; raises if the response is a failure."""


def make_resend_handler(
    letter: DeadLetter, kept: CallArguments | None, senders: Mapping[str, RequestSender]
) -> RequeueHandler:
    """A handler that sends a letter's request again, with the sender for its address."""
    sent = _request_of(letter, kept)
    origin = origin_of(sent.url)
    send = senders.get(origin)
    if send is None:
        raise ConfigurationError(
            f"no sender is registered for {origin}. Register one, dead.handle_requests({origin!r}, send), or make a "
            f"Client with these dead letters; on the command line: --send-to {origin}"
        )

    def resend(request: Any) -> Any:
        return send(sent)

    return make_requeue_handler(letter.name, resend, gated=True, options={})


def check_resendable(letter: DeadLetter, kept: CallArguments | None, honoured: float, *, did_not_happen: bool) -> None:
    """
    Refuse a request that may have happened, unless its key protects it from happening twice.

    A server is trusted to remember a key for `honoured` seconds.
    """
    if did_not_happen or not letter.may_have_happened or _request_of(letter, kept).safe:
        return
    if letter.keyed and letter.seconds_old < honoured:
        return
    late = f"is more than {timedelta(seconds=honoured)} old, so the server may have forgotten its key"
    raise OutcomeUnknown(
        f"dead letter {letter.digest} ({letter.request}) may have happened, and it "
        f"{late if letter.keyed else 'had no key'}. Check whether it did. If so, discard the letter (onceward dead "
        f"discard {letter.digest} --yes); if not, requeue it with did_not_happen=True (--did-not-happen)"
    )


def _request_of(letter: DeadLetter, kept: CallArguments | None) -> SentRequest:
    if kept is None:
        raise ConfigurationError(
            f"dead letter {letter.digest} cannot be requeued: its request was not kept "
            f"({letter.payload_note or 'omitted'}). Send it again from your program, under the same key, or discard "
            "it; keep requests from now on with gate.dead_letters(payload='plain') or payload=Sealed(key)"
        )
    return sent_request_of(kept.kwargs)
