"""
OpenAPI 3.1 from the tables of endpoints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from onceward import __version__
from onceward.http.server.profile import Profile
from onceward.service.web.endpoints import ANYWHERE, ApiEndpoint, refusals_of
from onceward.service.web.problems import MethodNotAllowed, published_refusals

_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "retry"],
    "properties": {
        "type": {"type": "string", "description": "a page about this code"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "a stable word, for programs to act on"},
        "retry": {"enum": ["same-key", "new-key", "never"]},
        "retryAfterSeconds": {"type": "number"},
    },
}


def openapi_document(title: str, groups: Iterable[tuple[str, Iterable[ApiEndpoint], Profile]]) -> dict[str, Any]:
    """The document for groups of endpoints, each under its name and with the profile of its keys."""
    taken = [(name, list(endpoints), profile) for name, endpoints, profile in groups]
    every = [end for _, endpoints, _ in taken for end in endpoints]
    types = [one for end in every for one in (end.body, end.response) if one is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    found = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    _bind(components, every)
    for name, endpoints, profile in taken:
        for end in endpoints:
            paths.setdefault(end.path, {})[end.method.lower()] = _operation(name, end, found, profile)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(group: str, end: ApiEndpoint, schemas: dict[int, Any], profile: Profile) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", **end.bounds.get(f"path.{name}", {})},
        }
        for name in _PATH_PARAMETER.findall(end.path)
    ]
    parameters += [
        {"name": one.name, "in": one.location, "description": one.meaning, "schema": one.schema}
        for one in end.parameters
    ]
    if end.keyed:
        texts = {"type": "string", "minLength": 1, "maxLength": profile.key_characters_max, "pattern": "^[!-~]+$"}
        plan, step = profile.plan_header, profile.step_header
        headers = [
            (profile.key_header, "identifies this request: a retry with the same key replays the first response")
        ]
        if profile.plans:
            headers.append((plan, f"the plan that this is a step of; goes with {step}"))
            headers.append((step, f"the step's name in its plan; goes with {plan}"))
        for header, meaning in headers:
            parameters.append({"name": header, "in": "header", "description": meaning, "schema": texts})
    operation: dict[str, Any] = {
        "tags": [group],
        "summary": end.summary,
        "operationId": end.run.__name__.lstrip("_"),
        "security": [] if end.signed else [{"token": []}],
        "parameters": parameters,
        "responses": {
            **{str(status): _success(end, schemas) for status in end.statuses},
            **_refusals(end, profile),
        },
    }
    if end.body is not None:
        content: dict[str, Any] = {"schema": schemas[id(end.body)]}
        if end.example is not None:
            content["example"] = end.example
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    if end.signed:
        operation["requestBody"] = {"required": True, "content": {"*/*": {"schema": {}}}}
    return operation


def _success(end: ApiEndpoint, schemas: dict[int, Any]) -> dict[str, Any]:
    schema = schemas[id(end.response)] if end.response is not None else {}
    return {"description": end.summary, "content": {"application/json": {"schema": schema}}}


def _refusals(end: ApiEndpoint, profile: Profile) -> dict[str, Any]:
    """What an endpoint may refuse with, by status."""
    kinds = [kind for kind in (*ANYWHERE, *refusals_of(end)) if kind is not MethodNotAllowed]
    by_status: dict[int, list[dict[str, Any]]] = {}
    for one in published_refusals(kinds, profile):
        by_status.setdefault(one["status"], []).append(one)
    return {str(status): _problem(status, by_status[status]) for status in sorted(by_status)}


def _problem(status: int, refusals: list[dict[str, Any]]) -> dict[str, Any]:
    codes = sorted({one["code"] for one in refusals})
    kinds = sorted(one["kind"] for one in refusals if "kind" in one)
    meanings = {one["code"]: one["meaning"] for one in refusals}
    words = " ".join(f"`{code}`: {meanings[code]}" for code in codes)
    if kinds:
        words += f" Kinds: {', '.join(kinds)}."
    narrowed = {"type": "object", "properties": {"status": {"const": status}, "code": {"enum": codes}}}
    schema = {"allOf": [{"$ref": "#/components/schemas/Problem"}, narrowed]}
    return {"description": words, "content": {"application/problem+json": {"schema": schema}}}


def _bind(components: dict[str, Any], endpoints: Iterable[ApiEndpoint]) -> None:
    """Put the limits in force into the schemas of bodies."""
    for end in endpoints:
        for place, limits in end.bounds.items():
            name, _, member = place.partition(".")
            if name != "path":
                components[name]["properties"][member] |= limits
