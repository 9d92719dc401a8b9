"""
A dead letter's arguments: how they are stored, and how a handler gets them again.

Arguments are kept as results are (see `codec.py`), so a Decimal comes back as text; the handler's own annotations turn
it into a Decimal again. Nothing that is stored chooses a type.
"""

from __future__ import annotations

import inspect
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_type_hints

from onceward._core.codec import JSON, Encoded, NotEncodable, Restorer, decode, encode, type_name
from onceward._core.dead_letters import DeadLetter, StoredPayload
from onceward._core.errors import ConfigurationError, OncewardError
from onceward._core.fingerprint import fingerprint_canonical
from onceward._core.result_restorer import restorer
from onceward._core.sealing import MAGIC, Seal, open_value, payload_context, seal_value
from onceward._core.sent_request import REQUEST, request_document_of
from onceward._core.stops import GivenUp
from onceward.gate.function_inspection import OPERATION, OperationContract, function_name, marks_effect
from onceward.gate.seal_keys import Sealed

LETTER = "letter"
"""The name of the parameter that a handler gets the dead letter in."""

_FROM_A_POLICY = ("attempt", "timeout")
"""What a retry policy around the handler fills in."""

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

PayloadMode: TypeAlias = Literal["plain"] | Seal | None


class CallArguments(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# --- keeping ---


def check_payload_mode(payload: PayloadMode) -> PayloadMode:
    """Refuse a wrong payload mode now, not when the first dead letter is stored."""
    if payload is None or payload == "plain" or (isinstance(payload, Seal) and not isinstance(payload, type)):
        return payload
    raise ConfigurationError(
        "payload is 'plain', Sealed(key), an object with seal and unseal, or left out: then no arguments are kept"
    )


def pack_arguments(payload: PayloadMode, scope: str, id: bytes, call: GivenUp, bytes_max: int) -> StoredPayload:
    """A call's arguments as they are stored. If they cannot be, the letter is stored without them."""
    if payload is None:
        return StoredPayload()
    if call.request is not None and call.request.body is None:
        return StoredPayload(note="not kept: the body is a stream")
    try:
        # The letter's id goes inside, so that no sealed payload can be passed off as another letter's.
        data = encode({"id": id.hex(), "args": list(call.args), "kwargs": _named(call)}).data or b""
    except NotEncodable as error:
        place = str(error).partition(":")[0].removeprefix("result.")
        return StoredPayload(note=f"not kept: {place} is not plain data")
    if len(data) > bytes_max:
        return StoredPayload(note=f"not kept: {len(data):,} bytes, and the limit is {bytes_max:,}")
    if payload == "plain":
        return StoredPayload("plain", data.decode())
    try:
        sealed = seal_value(payload, data, payload_context(scope, id))
    except OncewardError as error:
        return StoredPayload(note=f"not kept: sealing raised {type_name(type(error.__cause__ or error))}")
    return StoredPayload("sealed", b64encode(sealed).decode("ascii"))


def _named(call: GivenUp) -> dict[str, Any]:
    return dict(call.kwargs) if call.request is None else {REQUEST: request_document_of(call.request)}


def unpack_arguments(payload: PayloadMode, letter: DeadLetter) -> CallArguments | None:
    """The arguments that a letter holds; None if it holds none."""
    if letter.payload == "omitted" or letter.payload_data is None:
        return None
    data = letter.payload_data.encode()
    if letter.payload == "sealed":
        if payload is None or payload == "plain":
            raise ConfigurationError(
                f"the payload of dead letter {letter.digest} is sealed: give the dead letters its key, "
                "gate.dead_letters(payload=Sealed(key))"
            )
        try:
            data = _opened(payload, b64decode(data, validate=True), letter)
        except OncewardError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"the payload of dead letter {letter.digest} cannot be opened ({type_name(type(error))}): it was "
                "sealed with another key (Sealed(new, old) opens with both), or was tampered with"
            ) from None
    try:
        match decode(Encoded(JSON, data)):
            case {"id": letter.id, "args": list(args), "kwargs": dict(kwargs)}:
                return CallArguments(tuple(args), kwargs)
    except OncewardError:
        pass  # Raised below, with the letter's digest.
    raise ConfigurationError(f"the payload of dead letter {letter.digest} is damaged, or belongs to another letter")


def _opened(seal: Seal, sealed: bytes, letter: DeadLetter) -> bytes:
    if not sealed.startswith(MAGIC) and isinstance(seal, Sealed):
        return seal.unseal_fernet(sealed)
    return open_value(seal, sealed, payload_context(letter.scope, bytes.fromhex(letter.id)), letter.digest)


def key_of_call(call: GivenUp) -> str | None:
    """The key of a call that was given none by its policy: of a function declared with `once`, of a named request."""
    if call.key is None and call.request is not None:
        return call.request.name
    if call.key is not None or not isinstance(getattr(call.fn, "contract", None), OperationContract):
        return call.key
    try:
        return str(call.fn.key_of(*call.args, **call.kwargs))
    except Exception:
        return None  # Then the call itself was refused for it.


def request_fingerprint(call: GivenUp) -> bytes | None:
    """The fingerprint of the arguments by name, as a gate compares them; None if they have no canonical form."""
    if call.request is not None:
        return fingerprint_canonical(request_document_of(call.request))
    try:
        bound = inspect.signature(call.fn).bind_partial(*call.args, **call.kwargs)
        bound.apply_defaults()
        contract = getattr(call.fn, "contract", None)
        names = contract.compared_by if isinstance(contract, OperationContract) else tuple(bound.arguments)
        return fingerprint_canonical({name: bound.arguments[name] for name in names})
    except Exception:
        return None


# --- handling ---


class RequeueHandler(NamedTuple):
    """A function that repeats a call that was given up."""

    name: str
    fn: Callable[..., Any]
    gated: bool
    """Whether it goes through the gate by itself, under the operation's own key."""
    options: Mapping[str, Any]
    signature: inspect.Signature
    """What it takes of the call's arguments."""
    takes_letter: bool
    takes_operation: bool
    marked: bool
    restores: Mapping[str, Restorer]

    def bound(self, letter: DeadLetter, kept: CallArguments | None) -> CallArguments:
        """The arguments to call it with; raises if it does not take them."""
        parameters = self.signature.parameters
        letters = {LETTER: letter} if self.takes_letter else {}
        if kept is None:
            needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in _VARIADIC]
            if needed:
                raise ConfigurationError(
                    f"the handler of {self.name!r} takes {', '.join(needed)}, and dead letter {letter.digest} has no "
                    f"payload ({letter.payload_note or 'omitted'}). Keep arguments from now on, "
                    "gate.dead_letters(payload='plain'); or register a handler that takes `letter` alone and looks "
                    "the rest up by letter.key"
                )
            return CallArguments((), dict(letters))
        if self.takes_letter and not parameters:
            return CallArguments((), dict(letters))
        try:
            bound = self.signature.bind(*kept.args, **kept.kwargs)
        except TypeError as error:
            raise ConfigurationError(
                f"the handler of {self.name!r} does not take the arguments that were kept: {error}"
            ) from None
        for name, restore in self.restores.items():
            if name in bound.arguments:
                bound.arguments[name] = self._restored(name, restore, bound.arguments[name])
        return CallArguments(bound.args, {**bound.kwargs, **letters})

    def _restored(self, name: str, restore: Restorer, value: Any) -> Any:
        try:
            return restore(value)
        except OncewardError:
            raise ConfigurationError(
                f"the handler of {self.name!r} declares another type for {name} than the one that was kept"
            ) from None


def make_requeue_handler(
    name: str, fn: Callable[..., Any], *, gated: bool | None, options: Mapping[str, Any]
) -> RequeueHandler:
    """A handler made of a function: what it takes, and how it is run."""
    if not callable(fn):
        raise ConfigurationError(f"a handler is a function, and {type(fn).__name__} cannot be called")
    declared = isinstance(getattr(fn, "contract", None), OperationContract)
    goes_by_itself = declared if gated is None else gated
    if declared and gated is False:
        raise ConfigurationError(
            f"{function_name(fn)} is declared with once, so it already goes through its gate: leave gated out"
        )
    if goes_by_itself and options:
        raise ConfigurationError("a handler that already goes through a gate takes its options from there")
    try:
        whole = inspect.signature(fn)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{function_name(fn)} does not say what it takes; wrap it in a function") from None
    wrapped = hasattr(fn, "__wrapped__")  # By a policy, perhaps, which fills these in.
    filled = {LETTER, *(() if goes_by_itself else (OPERATION,)), *(_FROM_A_POLICY if wrapped else ())}
    parameters = [one for one in whole.parameters.values() if one.name not in filled]
    return RequeueHandler(
        name,
        fn,
        goes_by_itself,
        options,
        whole.replace(parameters=parameters),
        LETTER in whole.parameters,
        OPERATION in whole.parameters and not goes_by_itself,
        OPERATION in whole.parameters and not goes_by_itself and marks_effect(fn),
        _restores(fn, parameters),
    )


def _restores(fn: Callable[..., Any], parameters: list[inspect.Parameter]) -> dict[str, Restorer]:
    try:
        hints = get_type_hints(inspect.unwrap(fn))
    except Exception:  # Resolving evaluates the caller's text, which may raise anything.
        return {}
    found: dict[str, Restorer] = {}
    for one in parameters:
        if one.name in hints and one.kind not in _VARIADIC:
            try:
                restore = restorer(hints[one.name])
            except ConfigurationError:
                continue  # A type that is never kept: it is given as it was read.
            if restore is not None:
                found[one.name] = restore
    return found
