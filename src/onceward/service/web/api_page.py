"""
The page at `/`: what the service is, its endpoints by app, each with a sample that works and a form to try it.

Made from the OpenAPI document, so that it cannot say anything else. Style and script are files of our own; a token that
is typed here stays in the page.
"""

from __future__ import annotations

import re
from json import dumps
from shlex import quote
from typing import Any

from onceward.dashboard.html import Content, Markup, document, element

ASSETS = "/page"
"""Where the page's own files are."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_PATH_PARAMETER = re.compile(r"\{(\w+)\}")
_SAMPLES = {"namespace": "demo", "database": "shop", "customer": "cus_17", "id": "ID", "source": "SOURCE"}
"""What stands in samples for the parts of a path: the tenant that a new service makes, and its first database."""
_TONES = {"get": "busy", "post": "good", "put": "warn", "delete": "bad"}


def api_page(described: dict[str, Any], *, dashboard: bool) -> str:
    """The page of a described API."""
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            groups.setdefault(operation["tags"][0], []).append((method, path, operation))
    menu = [element("li", element("a", name, href=f"#{_anchor(name)}")) for name in [*groups, "Types"]]
    title = str(described["info"]["title"])
    head = (
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} API"),
        element("link", rel="stylesheet", href=f"{ASSETS}/dashboard.css"),
        element("script", src=f"{ASSETS}/dashboard.js", defer=True),
        element("script", src=f"{ASSETS}/api.js", defer=True),
    )
    links = [element("a", "Dashboard", href="/dashboard")] if dashboard else []
    top = element(
        "header",
        element("a", element("span", "once", class_="brand-a"), "ward", href="/", class_="brand"),
        element("span", f"API, version {described['info']['version']}", class_="store"),
        links,
        class_="top",
    )
    main = element(
        "main",
        element("h1", f"{title} API"),
        _introduction(),
        _token(),
        [_group(name, some) for name, some in groups.items()],
        _types(described),
        id="main",
        tabindex=-1,
    )
    body = (
        element("a", "Skip to content", href="#main", class_="skip"),
        top,
        element("div", element("nav", element("ul", menu), aria_label="Parts of the API"), main, class_="frame"),
    )
    return document(head, body, lang="en")


def _introduction() -> Markup:
    return element(
        "section",
        element(
            "p",
            "Send a request as many times as you like: with the same ",
            element("code", "Idempotency-Key"),
            " it happens once, and every retry gets the first response.",
        ),
        element(
            "p",
            "For programs: ",
            element("a", "openapi.json", href="/openapi.json"),
            ". What is promised about keys, and what each refusal means: ",
            element("a", "/.well-known/idempotency", href="/.well-known/idempotency"),
            ".",
        ),
        class_="card",
    )


def _token() -> Markup:
    return element(
        "section",
        element("h2", "Try it"),
        element(
            "div",
            element("label", "Token", for_="token"),
            element("input", id="token", type="password", autocomplete="off", spellcheck="false"),
            class_="field",
        ),
        element(
            "p",
            "It stays in this page: each endpoint below has a form that sends it. onceward serve printed one when it "
            "first started, and onceward token create makes others.",
            class_="help",
        ),
        element("p", "The samples are for a shell in which these are set:"),
        element(
            "pre",
            element("code", "export URL=", element("span", "http://127.0.0.1:8080", class_="origin"), " TOKEN=ow_..."),
            class_="command wrapped",
            tabindex=0,
        ),
        class_="card",
        id="try",
    )


def _group(name: str, some: list[tuple[str, str, dict[str, Any]]]) -> Markup:
    return element(
        "section",
        element("h2", name, id=_anchor(name)),
        [_endpoint(method, path, operation) for method, path, operation in some],
        class_="group",
    )


def _endpoint(method: str, path: str, operation: dict[str, Any]) -> Markup:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    sample = None if not body else dumps(body.get("example", {}))
    headers = [one for one in operation["parameters"] if one["in"] == "header"]
    key = f"{operation['operationId']}-1" if headers and method != "get" else None
    curl = [f'curl -i{"" if method == "get" else f" -X {method.upper()}"} "$URL{_filled(path)}"']
    if operation["security"]:
        curl.append('-H "Authorization: Bearer $TOKEN"')
    if key is not None:
        curl.append(f"-H 'Idempotency-Key: {key}'")
    if sample is not None:
        curl += ["-H 'Content-Type: application/json'", f"-d {quote(sample)}"]
    parameters = [
        element(
            "div",
            element("dt", element("code", one["name"]), f" in {one['in']}"),
            element("dd", one.get("description", "")),
        )
        for one in operation["parameters"]
        if one["in"] != "path"
    ]
    refused = [
        element("div", element("dt", status), element("dd", response["description"]))
        for status, response in operation["responses"].items()
        if "application/problem+json" in response["content"]
    ]
    schema = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return element(
        "article",
        element(
            "h3",
            element("span", method.upper(), class_=f"badge {_TONES.get(method, 'plain')}"),
            " ",
            element("code", path),
        ),
        element("p", operation["summary"]),
        element("pre", element("code", " \\\n  ".join(curl)), class_="command wrapped", tabindex=0),
        element("p", "Its body: ", element("a", schema, href=f"#type-{schema}"), class_="note body")
        if schema
        else None,
        _details("Try it", _form(method, path, operation, key, sample)) if operation["security"] else None,
        _details("Parameters", element("dl", parameters, class_="facts")) if parameters else None,
        _details("Refusals", element("dl", refused, class_="refusals")),
        class_="card",
    )


def _form(method: str, path: str, operation: dict[str, Any], key: str | None, sample: str | None) -> Markup:
    name = f"{operation['tags'][0]}-{operation['operationId']}-{method}".lower()
    fields: list[Content] = [
        _field(f"{name}-{part}", part, _SAMPLES.get(part, ""), data_path=part) for part in _PATH_PARAMETER.findall(path)
    ]
    if key is not None:
        fields.append(_field(f"{name}-key", "Idempotency-Key", key, data_key=True))
    if sample is not None:
        fields.append(
            element(
                "div",
                element("label", "Body", for_=f"{name}-body"),
                element("textarea", sample, id=f"{name}-body", rows=4, data_body=True, spellcheck="false"),
                class_="field",
            )
        )
    return element(
        "form",
        fields,
        element("button", "Send", class_="primary"),
        element("pre", "", class_="value answer", hidden=True, tabindex=0, aria_live="polite"),
        class_="try",
        data_method=method.upper(),
        data_target=path,
    )


def _field(id: str, label: str, value: str, **attributes: str | bool) -> Markup:
    return element(
        "div",
        element("label", label, for_=id),
        element("input", id=id, value=value, spellcheck="false", **attributes),
        class_="field",
    )


def _details(summary: str, *children: Content) -> Markup:
    return element("details", element("summary", summary), children)


def _types(described: dict[str, Any]) -> Markup:
    shown = [
        element(
            "details",
            element("summary", element("code", name)),
            element("pre", dumps(schema, indent=2), tabindex=0),
            id=f"type-{name}",
        )
        for name, schema in sorted(described["components"]["schemas"].items())
    ]
    return element("section", element("h2", "Types", id="types"), element("div", shown, class_="card"), class_="group")


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _filled(path: str) -> str:
    return _PATH_PARAMETER.sub(lambda part: _SAMPLES.get(part.group(1), part.group(1).upper()), path)
