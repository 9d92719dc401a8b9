"""
The reference: a page for each public package with every name, its signature and its words, from the source.

A name that a package only passes on (`onceward.Gate` is `onceward.gate.Gate`) is described where it belongs, and has a
row with a link everywhere else.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from site_builder import source_names
from site_builder.page_links import slug
from site_builder.source_names import Definition, Function

PACKAGES: dict[str, tuple[str, ...]] = {
    "Core": (
        "onceward",
        "onceward.gate",
        "onceward.keys",
        "onceward.errors",
        "onceward.verdicts",
        "onceward.retry",
        "onceward.stores",
        "onceward.adapters",
        "onceward.runtime.environment",
    ),
    "Agents": (
        "onceward.agents",
        "onceward.agents.langchain",
        "onceward.agents.openai_agents",
        "onceward.agents.openai",
        "onceward.agents.pydantic_ai",
        "onceward.agents.anthropic",
        "onceward.agents.mcp",
        "onceward.agents.fastmcp",
        "onceward.agents.temporal",
        "onceward.agents.google_adk",
    ),
    "HTTP": (
        "onceward.http",
        "onceward.http.asgi",
        "onceward.http.wsgi",
        "onceward.http.django",
        "onceward.http.httpx",
        "onceward.http.httpx2",
        "onceward.http.requests",
    ),
    "Messages": (
        "onceward.queues",
        "onceward.queues.celery",
        "onceward.queues.dramatiq",
        "onceward.queues.rq",
        "onceward.queues.arq",
        "onceward.queues.rabbitmq",
        "onceward.messaging.outbox",
        "onceward.messaging.outbox.relay",
        "onceward.messaging.outbox.delivery",
        "onceward.messaging.outbox.delivery.mail",
        "onceward.messaging.inbox",
        "onceward.messaging.webhooks",
        "onceward.messaging.emitter",
    ),
    "Service": (
        "onceward.client",
        "onceward.service.access",
        "onceward.service.ledger",
        "onceward.service.ledger.hash_chain",
        "onceward.service.sql",
    ),
    "Operating": (
        "onceward.journal",
        "onceward.observe",
        "onceward.observe.otel",
        "onceward.audit",
        "onceward.overview",
        "onceward.dashboard",
        "onceward.migrate",
    ),
    "Testing": (
        "onceward.testing",
        "onceward.testing.assert_once",
        "onceward.testing.once_story",
        "onceward.testing.sandbox",
        "onceward.testing.effects",
        "onceward.testing.clock",
        "onceward.testing.crash_marker",
        "onceward.testing.simulated_process",
        "onceward.testing.strategies",
        "onceward.testing.store_suite",
        "onceward.testing.store_suite.suite",
        "onceward.testing.http_suite",
        "onceward.testing.explorer",
        "onceward.testing.simulator",
    ),
}
"""The public packages, in the order of the navigation. A test holds that none of the library's is missing."""

FOLDER = "reference/python"
_WIDTH = 96
_LONG_VALUE = 160
_OWN_WORDS = re.compile(r"\b(May\s+import|It\s+imports|Start\s+(reading\s+)?with|To\s+write\s+another)\b")
"""From here on a package's docstring speaks to whoever changes it."""
_INSIDE = re.compile(r"`_core|\w\.py`")
_NO_BASES = {"object", "Generic", "NamedTuple", "Protocol", "StrEnum", "Enum", "IntEnum", "TypedDict", "ABC"}


class ReferencePage(NamedTuple):
    """One page of the reference."""

    group: str
    module: str
    path: str
    text: str


def pages() -> Iterator[ReferencePage]:
    """Every page, in the order of the navigation."""
    homes = _homes()
    for group, packages in PACKAGES.items():
        for module in packages:
            yield ReferencePage(group, module, path_of(module), _page(module, homes))


def path_of(module: str) -> str:
    """Where a package's page is, from the site's root."""
    return f"{FOLDER}/{module}.md"


def _homes() -> dict[tuple[str, str], str]:
    """Definition -> the public package that describes it: the nearest that offers it; the root last."""
    homes: dict[tuple[str, str], str] = {}
    for packages in PACKAGES.values():
        for module in packages:
            for name in source_names.offered_names(module):
                found = source_names.find(module, name)
                if found is None:
                    continue
                known = homes.get((found.module, found.name))
                if known is None or known == "onceward" or _is_nearer(module, known, found.module):
                    homes[found.module, found.name] = module
    return homes


def _is_nearer(module: str, known: str, defined: str) -> bool:
    """Whether a package is nearer to where something is defined than the one that is known to offer it."""
    is_above = f"{defined}.".startswith(f"{module}.")
    return is_above and (not f"{defined}.".startswith(f"{known}.") or len(module) > len(known))


def _page(module: str, homes: dict[tuple[str, str], str]) -> str:
    words = ast.get_docstring(source_names.tree_of(module)) or ""
    passed_on: list[tuple[str, str, str]] = []
    own: list[str] = []
    for name in source_names.offered_names(module):
        found = source_names.find(module, name)
        home = module if found is None else homes[found.module, found.name]
        if found is not None and home != module:
            passed_on.append((name, home, _first_words(found)))
        else:
            own.append(_entry(name, found, homes))
    parts = [f"# {module}", _prose(_for_users(words))]
    if passed_on:
        rows = "\n".join(f"| [`{name}`]({home}.md#{slug(name)}) | {first} |" for name, home, first in passed_on)
        parts.append(f"| name | |\n|---|---|\n{rows}")
    return "\n\n".join(part for part in (*parts, *own) if part) + "\n"


def _entry(name: str, found: Definition | None, homes: dict[tuple[str, str], str]) -> str:
    if found is None:
        return f"## {name}\n\nComes from another library, and is passed on."
    node = found.nodes[-1]
    if isinstance(node, ast.ClassDef):
        return "\n\n".join(_class_parts(name, found, node, homes))
    if isinstance(node, Function):
        return "\n\n".join([f"## {name}", _fenced(*_signatures(name, found.nodes)), _prose(found.words or "")])
    value = ast.unparse(node)
    value = value if len(value) <= _LONG_VALUE else f"{value[:_LONG_VALUE].rsplit(' ', 1)[0]} ..."
    return "\n\n".join([f"## {name}", _fenced(value), _prose(found.words or "")])


def _class_parts(name: str, found: Definition, node: ast.ClassDef, homes: dict[tuple[str, str], str]) -> Iterator[str]:
    lineage = list(source_names.bases_of(found))
    yield f"## {name}"
    yield _fenced(_class_signature(name, lineage))
    shown = [text for base in node.bases if (text := _base(found.module, ast.unparse(base), homes))]
    if shown:
        yield f"Based on {', '.join(shown)}."
    yield _prose(found.words or "")
    fields, methods = _members(lineage)
    if fields:
        yield "\n".join(f"- `{shown}`{f': {words}' if words else ''}" for shown, words in fields)
    for method, nodes, words in methods:
        yield f"### {name}.{method}"
        yield _fenced(*_signatures(method, nodes, is_method=True))
        yield _prose(words)


def _base(module: str, base: str, homes: dict[tuple[str, str], str]) -> str:
    """A base as it is shown: with a link if it is described, and not at all if it is inside the project only."""
    name = base.partition("[")[0]
    if name.rpartition(".")[2] in _NO_BASES:
        return ""
    found = source_names.find(module, name)
    if found is None:
        return f"`{base}`"
    home = homes.get((found.module, found.name))
    return f"[`{base}`]({home}.md#{slug(found.name)})" if home else ""


def _members(
    lineage: list[Definition],
) -> tuple[list[tuple[str, str]], list[tuple[str, tuple[ast.stmt, ...], str]]]:
    """Fields with their words, and methods with theirs; what a base has is shown with the class that has it."""
    fields: dict[str, tuple[str, str]] = {}
    methods: dict[str, tuple[tuple[ast.stmt, ...], str]] = {}
    for definition in lineage:
        node = definition.nodes[-1]
        own: dict[str, tuple[tuple[ast.stmt, ...], str]] = {}
        for member, words in source_names.described(node.body) if isinstance(node, ast.ClassDef) else ():
            for name in source_names.names_of(member):
                if name.startswith("_") and name != "__call__":
                    continue
                if not isinstance(member, Function):
                    if not isinstance(member, ast.ClassDef):
                        text = " ".join(_prose(words or "").split())
                        fields.setdefault(name, (ast.unparse(member), text))
                elif _marked(member, ".setter"):
                    continue
                elif _marked(member, "property"):
                    returns = f": {ast.unparse(member.returns)}" if member.returns else ""
                    fields.setdefault(name, (f"{name}{returns}", " ".join(_prose(words or "").split())))
                else:
                    before = own[name][0] if name in own and _marked(own[name][0][-1], "overload") else ()
                    own[name] = ((*before, member), words or (own[name][1] if name in own else ""))
        for name, (nodes, words) in own.items():
            if name not in methods:
                methods[name] = (nodes, words)
            elif not methods[name][1]:
                methods[name] = (methods[name][0], words)
    return list(fields.values()), [(name, nodes, words) for name, (nodes, words) in methods.items()]


def _class_signature(name: str, lineage: list[Definition]) -> str:
    for definition in lineage:
        node = definition.nodes[-1]
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, Function) and member.name in ("__init__", "__new__"):
                return _call(f"class {name}", member.args, skip_first=True)
    node = lineage[0].nodes[-1]
    if isinstance(node, ast.ClassDef) and _is_made_of_fields(lineage):
        arguments = [
            _field(member)
            for definition in reversed(lineage)
            for base in [definition.nodes[-1]]
            for member in (base.body if isinstance(base, ast.ClassDef) else ())
            if isinstance(member, ast.AnnAssign) and "ClassVar" not in ast.unparse(member.annotation)
            if isinstance(member.target, ast.Name) and not member.target.id.startswith("_")
            if "init=False" not in ast.unparse(member)
        ]
        keyword_only = any("kw_only=True" in ast.unparse(mark) for mark in node.decorator_list)
        return _wrapped(f"class {name}", ["*", *arguments] if keyword_only and arguments else arguments)
    return f"class {name}"


def _field(member: ast.AnnAssign) -> str:
    """A field as an argument: `field(...)` is a default only if it says one."""
    given = member.value
    if not isinstance(given, ast.Call) or ast.unparse(given.func) not in ("field", "dataclasses.field"):
        return ast.unparse(member)
    said = {keyword.arg: ast.unparse(keyword.value) for keyword in given.keywords}
    shown = f"{ast.unparse(member.target)}: {ast.unparse(member.annotation)}"
    if "default_factory" in said:
        return f"{shown} = {said['default_factory']}()"
    return f"{shown} = {said['default']}" if "default" in said else shown


def _is_made_of_fields(lineage: list[Definition]) -> bool:
    """Whether a class has its arguments from its fields: a data class or a named tuple."""
    nodes = [definition.nodes[-1] for definition in lineage]
    return any(
        isinstance(node, ast.ClassDef)
        and (_marked(node, "dataclass") or any(ast.unparse(base) == "NamedTuple" for base in node.bases))
        for node in nodes
    )


def _signatures(name: str, nodes: tuple[ast.stmt, ...], *, is_method: bool = False) -> list[str]:
    functions = [node for node in nodes if isinstance(node, Function)]
    shown = [node for node in functions if _marked(node, "overload")] or functions[-1:]
    texts = []
    for node in shown:
        static = _marked(node, "staticmethod")
        keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        marks = "".join(f"@{mark}\n" for mark in ("classmethod", "staticmethod") if _marked(node, mark))
        marks += "@contextmanager\n" if _marked(node, "contextmanager") else ""
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        texts.append(marks + _call(f"{keyword} {name}", node.args, skip_first=is_method and not static, after=returns))
    return texts


def _call(head: str, arguments: ast.arguments, *, skip_first: bool = False, after: str = "") -> str:
    """`head(...)`, with one argument on a line if it is long."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parts = [_argument(one, default) for one, default in zip(positional, defaults, strict=True)]
    slash = len(arguments.posonlyargs)
    if skip_first and parts:
        parts, slash = parts[1:], slash - 1
    if slash > 0:
        parts.insert(slash, "/")
    if arguments.vararg:
        parts.append(f"*{_argument(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [_argument(one, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append(f"**{_argument(arguments.kwarg, None)}")
    return _wrapped(head, parts, after)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"


def _wrapped(head: str, parts: list[str], after: str = "") -> str:
    short = f"{head}({', '.join(parts)}){after}"
    if len(short) <= _WIDTH:
        return short
    return f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + f"){after}"


def _marked(node: ast.stmt, mark: str) -> bool:
    """Whether a decorator of this name is on it."""
    marks = node.decorator_list if isinstance(node, ast.ClassDef | Function) else []
    return any(re.search(rf"(^|\W){re.escape(mark.lstrip('.'))}\b", ast.unparse(one)) for one in marks)


def _fenced(*signatures: str) -> str:
    return "```python\n" + "\n\n".join(signatures) + "\n```"


def _for_users(words: str) -> str:
    """A package's docstring without what it says to those who change it."""
    kept = []
    for paragraph in words.split("\n\n"):
        cut = _OWN_WORDS.search(paragraph)
        if paragraph.startswith("    "):
            kept.append(paragraph)
        elif _INSIDE.search(paragraph):
            continue
        elif cut is None:
            kept.append(paragraph)
        elif paragraph[: cut.start()].strip():
            kept.append(paragraph[: cut.start()].strip())
    return "\n\n".join(kept)


def _first_words(found: Definition) -> str:
    """The first paragraph, in one line."""
    return " ".join(_prose((found.words or "").strip().split("\n\n")[0]).split()).replace("|", "\\|")


def _prose(words: str) -> str:
    """A docstring as Markdown: code stays code, and nothing else is taken for a mark."""
    lines = []
    for line in textwrap.dedent(words).strip("\n").splitlines():
        if line.startswith("    "):
            lines.append(line)
        else:
            pieces = re.split(r"(`+[^`]+`+)", line)
            lines.append("".join(one if one.startswith("`") else _escaped(one) for one in pieces))
    return "\n".join(lines).strip("\n")


def _escaped(text: str) -> str:
    """Marks of Markdown as plain characters; emphasis in single stars stays."""
    text = re.sub(r"([_<\[\]])", r"\\\1", text)
    return re.sub(r"\*(?!\w[^*]*\w\*)(?<!\w\*)", r"\\*", text)
