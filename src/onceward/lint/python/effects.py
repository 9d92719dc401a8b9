"""
Effects: calls that change something outside, so that doing them twice is two of it; and whether they carry a key.

PUT and DELETE are not here: HTTP promises that doing them again does no harm; nor is PATCH, which nearly always sets
fields to values. Neither are requests that only ask although they are a POST: searches, tokens, GraphQL, models.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from onceward._core.key_ingredients import words_of
from onceward.lint.python.key_places import ARGUMENT_NAMES
from onceward.lint.python.names import PythonFile, calls_in, keyword_of, last_name, walk_here, word_set

_HTTP_LIBRARIES: Final = ("requests", "httpx", "aiohttp", "urllib3", "niquests", "httpx2", "curl_cffi", "aiohttp_retry")
_HTTP_OWNERS: Final = re.compile(r"(?:^|_)(?:session|client|http|requests|api|sess|httpx|pool|s|c)$")
_READ_PATHS: Final = re.compile(
    r"token|oauth|login|auth\b|search|query|graphql|completions?|embed|generate|predict|infer|validate|verify|"
    r"lookup|_rpc|jsonrpc|/rpc|introspect|translate|ping|health|download|parse|extract|convert|preview|estimate|quote|"
    r"localhost|127\.0\.0\.1|0\.0\.0\.0",
    re.IGNORECASE,
)
"""Addresses where a POST asks, or of a server of one's own."""
_ASKERS: Final = re.compile(
    r"^_*(?:a?get|fetch|list|search|query|read|load|download|find|poll|check|a?wait|stop|cancel|delete|remove|close|abort|"
    r"terminate|disable|enable|set|reset|update|upsert|ack|parse|extract|convert|render|preview|evaluate|estimate|quote|"
    r"compute|resolve|validate|verify|lookup|ping|count|ask|subscribe|connect|handshake|heartbeat|refresh|renew|sync|"
    r"put|replace|lock|unlock)(?:_|$)|chat|completion|embed|predict|infer|token|login|auth|prompt|llm|inference|runner|"
    r"rerank|transcri|translat|synthes|speech|classif|(?:^|_)score_|moderat|detect_|retriev|search|scrap|graphql",
    re.IGNORECASE,
)
"""Functions and classes that ask, or whose effect is the same the second time, by their names."""
_ASKING_MODULES: Final = re.compile(
    r"(?:^|[/_])(?:llms?|models?|embed\w*|rerank\w*|search\w*|retriev\w*|vector\w*|inference|completions?|scrap\w*|"
    r"graphql|speech|stt|tts|translat\w*|vision|ocr)(?=[/_.]|$)",
    re.IGNORECASE,
)
"""Files about models, search and the like: what they send by POST is a question."""
_AFTER_NOUN: Final = frozenset(
    {"for", "to", "from", "by", "with", "in", "on", "at", "via", "async", "now", "sync", "again"}
)
"""What may follow the thing that is made: `create_order_for`, and not `create_order_book`."""
_KEY_SUFFIXES: Final = ("_delivery_id", "_event_id", "_message_id", "_request_id", "_reference_id", "_delivery")
_MODELS: Final = frozenset(
    {"openai", "anthropic", "cohere", "mistralai", "groq", "litellm", "google", "ollama", "together"}
)
"""SDKs of models: their POSTs ask, and leave nothing behind but a bill."""
_VERBS: Final = frozenset({"charge", "refund", "pay", "payout", "transfer", "withdraw", "purchase", "book", "capture"})
_NOUNS: Final = word_set(
    "charge payment order invoice refund transfer payout booking subscription email mail sms card flight funds money "
    "deposit withdrawal purchase credit"
)
_MAKERS: Final = frozenset({"create", "send", "place", "submit", "capture", "book", "issue", "post", "make"})
_COLLECTIONS: Final = word_set(
    "charges payments payment_intents payment_intent charge refunds refund transfers transfer payouts payout invoices "
    "orders bookings subscriptions"
)
_LONE_VERBS: Final = frozenset({"charge", "refund", "pay", "payout", "book"})
_MAILERS: Final = frozenset({"smtplib", "django", "boto3", "aiosmtplib", "flask_mail"})
MONEY: Final = re.compile(
    r"(?:^|_)(?:charges?|pay|payments?|payouts?|refunds?|transfers?|invoices?|withdraw|withdrawals?|deposits?|purchases?|"
    r"money|billing|bill)(?:_|$)"
)
"""Names that are about money, as `words_of` writes them."""
_MAIL: Final = frozenset(
    {"sendmail", "send_message", "send_mail", "send_email", "send_raw_email", "send_templated_email"}
)
_INSERT: Final = re.compile(r"^\s*insert\s+into\b", re.IGNORECASE)
_GUARDED: Final = re.compile(r"on\s+conflict|on\s+duplicate|not\s+exists|or\s+ignore|or\s+replace", re.IGNORECASE)
_KEY_FIELDS: Final = ARGUMENT_NAMES | word_set(
    "reference_id external_id external_reference request_id client_id message_id nonce client_order_id transaction_id "
    "dedup_id event_id operation_id uuid client_msg_id notification_id"
)
"""Members of a body by which the other side can know a request again."""


def effect_of(file: PythonFile, call: ast.Call) -> str:
    """What a call does outside, in a word or two, or nothing: `POST`, `payment`, `mail`, `INSERT`."""
    name = file.dotted(call.func)
    root = name.split(".")[0].removesuffix("()")
    method = call.func.attr if isinstance(call.func, ast.Attribute) else name.rpartition(".")[2].lstrip("?")
    if root in _MODELS:
        return ""
    if _is_post(call, name, root, method):
        return "" if _only_asks(file, call) else "POST"
    owner = words_of(_owner_name(call.func))
    if root == "stripe" and method in ("create", "capture", "pay", "confirm"):
        return "payment"
    if method in ("create", "send") and owner in _COLLECTIONS:
        return "order" if owner == "orders" else "payment"
    if "twilio" in name and owner == "messages" and method == "create":
        return "message"
    if method in _MAIL and (root in _MAILERS or method != "send_message"):
        return "mail"
    if method == "execute" and _is_bare_insert(file, call):
        return "INSERT"
    effect = _by_name(call, words_of(method).split("_"), method, owner)
    return "" if effect and owner == "self" and _calls_nothing(file, call) else effect


def _by_name(call: ast.Call, words: list[str], method: str, owner: str) -> str:
    """What a function does, by what it is called: `create_payment`, `send_sms`, `api.charge`."""
    if len(words) > 4 or method.startswith("_") or not isinstance(call.func, ast.Attribute | ast.Name):
        return ""
    if words[0] in _MAKERS and _makes_noun(words):
        return "mail" if {"email", "mail", "sms"} & {*words} else "payment"
    if words[0] in _VERBS and (_NOUNS & {*words[1:]} or words[1:] in (["customer"], ["user"])):
        return "payment"
    # One word is enough only of something that is called: `gateway.charge(...)`, and not a method of one's own.
    if len(words) == 1 and words[0] in _LONE_VERBS and isinstance(call.func, ast.Attribute) and owner != "self":
        return "payment"
    return ""


def _makes_noun(words: list[str]) -> bool:
    """Whether the last word, or the one before a preposition, is what is made: an order, and not an order book."""
    return any(
        one in _NOUNS and (place == len(words) - 1 or words[place + 1] in _AFTER_NOUN)
        for place, one in enumerate(words)
        if place
    )


def _calls_nothing(file: PythonFile, call: ast.Call) -> bool:
    """Whether a method of one's own, which the file shows, sends nothing: declared only, or all it does is raise."""
    method = file.function_named(call.func)
    return method is not None and file.remembered("declared", method, lambda: _only_raises(method))


def _only_raises(function: ast.AST) -> bool:
    raised = {one.exc for one in walk_here(function) if isinstance(one, ast.Raise)}
    return all(one in raised for one in calls_in(function))


def _owner_name(called: ast.expr) -> str:
    return last_name(called.value) if isinstance(called, ast.Attribute) else ""


def is_unkeyed_effect(file: PythonFile, call: ast.Call) -> str:
    """What a call does outside without a key, or nothing. Arguments that are not shown may be one: nothing then."""
    effect = effect_of(file, call)
    if not effect or _may_carry_key(file, call):
        return ""
    around = file.function_of(call) or file.tree
    while isinstance(around, ast.Lambda):
        around = file.function_of(around) or file.tree
    return "" if file.remembered("key", around, lambda: mentions_key(around)) else effect


def mentions_key(node: ast.AST) -> bool:
    """Whether anything in a node is named for keys or for their purpose."""
    for one in ast.walk(node):
        texts = (
            getattr(one, "id", ""),
            getattr(one, "attr", ""),
            getattr(one, "arg", "") or "",
            one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) and len(one.value) < 100 else "",
        )
        if any(
            isinstance(text, str) and ("idempot" in text.lower() or words_of(text) in ARGUMENT_NAMES) for text in texts
        ):
            return True
    return False


def _is_post(call: ast.Call, name: str, root: str, method: str) -> bool:
    if method == "post":
        if root in _HTTP_LIBRARIES:
            return True
        return bool(_HTTP_OWNERS.search(words_of(_owner_name(call.func))))
    if method == "request" and (root in _HTTP_LIBRARIES or name.startswith("?")):
        verb = keyword_of(call, "method") or (call.args[0] if call.args else None)
        return isinstance(verb, ast.Constant) and verb.value in ("POST", "post")
    return False


def _only_asks(file: PythonFile, call: ast.Call) -> bool:
    """Whether the address says that the request asks and changes nothing."""
    function = file.function_of(call)
    owner = file.class_of(call)
    if _ASKERS.search(getattr(function, "name", "")) or (owner and _ASKERS.search(owner.name)):
        return True
    module = "/".join(file.source.path.replace("\\", "/").split("/")[-2:])
    if keyword_of(call, "files") is not None or _ASKING_MODULES.search(module):
        return True  # A file that is sent is most often one to be read, and what it is for is not shown.
    address = keyword_of(call, "url") or next((one for one in call.args if not _is_verb(one)), None)
    if address is None:
        return False
    for one in (address, *file.values_of(address)):
        for leaf in ast.walk(one):
            text = (
                leaf.value if isinstance(leaf, ast.Constant) else getattr(leaf, "id", "") or getattr(leaf, "attr", "")
            )
            if isinstance(text, str) and _READ_PATHS.search(text):
                return True
    return False


def _is_verb(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isalpha()


def _is_bare_insert(file: PythonFile, call: ast.Call) -> bool:
    if not call.args:
        return False
    for one in (call.args[0], *file.values_of(call.args[0])):
        for leaf in ast.walk(one):
            if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str) and _INSERT.match(leaf.value[:2000]):
                whole = " ".join(
                    x.value for x in ast.walk(one) if isinstance(x, ast.Constant) and isinstance(x.value, str)
                )
                return not _GUARDED.search(whole[:20_000])
    return False


def _may_carry_key(file: PythonFile, call: ast.Call) -> bool:
    for keyword in call.keywords:
        if keyword.arg is None:
            return True  # `**kwargs`: what is in it is not shown.
        if words_of(keyword.arg) in _KEY_FIELDS:
            return True
        if keyword.arg in ("headers", "json", "data", "params", "extra_headers") and _holds_key(file, keyword.value):
            return True
    return any(isinstance(one, ast.Starred) for one in call.args)


def _holds_key(file: PythonFile, value: ast.expr) -> bool:
    """
    Whether headers or a body may hold a key. Of a parameter nobody can say; of a body that is built elsewhere neither,
    and most have none.
    """
    if file.is_parameter(value) and not file.values_of(value):
        return keyword_is_headers(file, value)
    for one in (value, *file.values_of(value)):
        if _has_key_field(one):
            return True
        # `payload = event.build_payload()`, where this file has a `build_payload`.
        built = last_name(one.func) if isinstance(one, ast.Call) else ""
        if built and built in file.remembered("builders", file.tree, lambda: _key_builders(file)):
            return True
    return False


def _key_builders(file: PythonFile) -> set[str]:
    """The functions of a file that build a body with a key in it."""
    functions = (one for one in file.nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if any(_has_key_field(one) for one in ast.walk(function))}


def _has_key_field(node: ast.AST) -> bool:
    keys = node.keys if isinstance(node, ast.Dict) else ()
    return any(isinstance(key, ast.Constant) and isinstance(key.value, str) and is_key_field(key.value) for key in keys)


def is_key_field(name: str) -> bool:
    """Whether the other side can know a request again by a header or a member of this name."""
    words = words_of(name)
    return words in _KEY_FIELDS or words.endswith(_KEY_SUFFIXES)


def names_asker(name: str) -> bool:
    """Whether a function or class of this name asks, and changes nothing."""
    return bool(_ASKERS.search(name))


def keyword_is_headers(file: PythonFile, value: ast.expr) -> bool:
    """Whether a value is given as headers, where a key would stand."""
    parent = file.parents.get(value)
    return isinstance(parent, ast.keyword) and parent.arg in ("headers", "extra_headers")
