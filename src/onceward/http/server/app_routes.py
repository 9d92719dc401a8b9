"""
Looks through an application's own routes, for handlers with our decorators and for a `Route` that matches nothing.

    Starlette, FastAPI     `app.routes`, mounted ones too
    Flask                  `app.url_map`
    Django                 has a middleware of its own, which uses Django's resolver
    anything else          its routes are not known: no warnings

Done once, when the application starts or its first request arrives: by then its routes are registered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar, Unpack

from onceward.http.server.profile import profile
from onceward.http.server.profile_overrides import ProfileOverrides
from onceward.http.server.routes import Route

V = TypeVar("V", bound=Callable[..., Any])

OVERRIDES_ATTRIBUTE = "onceward_changes"
"""The attribute in which a decorator stores its overrides on the handler: `(overrides,)`, or `(None,)` to skip it."""

PATH_SAMPLES = ("x", "1", "00000000-0000-4000-8000-000000000000", "2026-11-16")
"""Values for the parameters of a path; one of them should fit: a word, a number, a UUID, a date."""

LEVELS_MAX = 30
_PLACE = re.compile(r"\{[^{}]*\}|<[^<>]*>")


def idempotent(**changes: Unpack[ProfileOverrides]) -> Callable[[V], V]:
    """Override fields of the profile for this handler. Put the decorator nearest to the function."""
    profile(**changes)  # Refused here, where it is written, if it cannot work.
    return lambda handler: _with_overrides(handler, changes)


def not_idempotent(handler: V) -> V:
    """Pass requests to this handler through, with or without a key."""
    return _with_overrides(handler, None)


def _with_overrides(handler: V, changes: ProfileOverrides | None) -> V:
    setattr(handler, OVERRIDES_ATTRIBUTE, (changes,))
    return handler


class AppRoute(NamedTuple):
    """One route of the application."""

    path: str
    """With `{name}` for one segment, `{name:path}` for whatever follows."""
    methods: frozenset[str]
    handler: Any
    open_ended: bool = False
    """Whether something unknown is mounted there: any path below it may be one of its own."""


def find_app_routes(app: Any) -> list[AppRoute] | None:
    """The routes of an application, looked for through the middlewares around it; None if they cannot be known."""
    for _ in range(LEVELS_MAX):
        app = getattr(app, "__self__", app)  # `app.wsgi_app` is a method of the Flask application.
        if hasattr(app, "url_map") and hasattr(app, "view_functions"):
            return [_of_flask(app, rule) for rule in app.url_map.iter_rules()]
        routes = getattr(app, "routes", None)
        if isinstance(routes, list):
            return list(_of_starlette(routes, ""))
        if (inner := getattr(app, "app", None)) is None:
            return None
        app = inner
    return None


def _of_flask(app: Any, rule: Any) -> AppRoute:
    def place(found: re.Match[str]) -> str:
        kind, _, name = found[0].strip("<>").rpartition(":")
        return f"{{{name}:path}}" if kind.startswith("path") else f"{{{name}}}"

    path = re.sub(r"<[^<>]*>", place, rule.rule)
    return AppRoute(path, frozenset(rule.methods or ()), app.view_functions.get(rule.endpoint))


def _of_starlette(routes: Iterable[Any], prefix: str) -> Iterable[AppRoute]:
    for route in routes:
        path = getattr(route, "path", None)
        if not isinstance(path, str):
            included = getattr(route, "effective_route_contexts", None)  # A router that FastAPI included.
            if included is None:
                yield AppRoute(prefix + "/{rest:path}", frozenset(), None, open_ended=True)
            else:
                yield from _of_starlette(included(), prefix)
            continue
        path = prefix + re.sub(r"\{(\w+):(?!path\})\w+\}", r"{\1}", path)
        inner = getattr(route, "routes", None)
        if inner:
            yield from _of_starlette(inner, path)
        elif hasattr(route, "endpoint"):
            yield AppRoute(path, frozenset(getattr(route, "methods", None) or ()), route.endpoint)
        else:
            yield AppRoute(path.rstrip("/") + "/{rest:path}", frozenset(), None, open_ended=True)


def decorated_routes(known: Iterable[AppRoute], methods: frozenset[str]) -> list[Route]:
    """The overrides of decorated handlers, as routes. `methods` are those that the profile handles."""
    found = []
    for one in known:
        overrides = getattr(one.handler, OVERRIDES_ATTRIBUTE, None)
        if overrides is None:
            continue
        here = one.methods & methods if one.methods else methods
        if overrides[0] is None:
            found.append(Route(one.path, methods=here, skip=True))
        else:
            found.append(Route(one.path, **{"methods": here, **overrides[0]}))
    return found


def unmatched_routes(routes: Iterable[Route], known: list[AppRoute]) -> list[tuple[Route, str | None]]:
    """The routes that no request of this application can match, each with the path that was probably meant."""
    patterns = [Route(one.path) for one in known]
    paths = [one.path for one in known if not one.open_ended]
    samples = {sample for one in known for sample in sample_paths(one.path)}
    lost = []
    for route in routes:
        own = sample_paths(route.path)
        if any(route.fits(sample) for sample in samples) or any(one.fits(path) for one in patterns for path in own):
            continue
        lost.append((route, next(iter(get_close_matches(route.path, paths, 1)), None)))
    return lost


def sample_paths(path: str) -> list[str]:
    """Example paths that a route should match."""
    return [_PLACE.sub(sample, path) for sample in PATH_SAMPLES]


def unmatched_warning(route: Route, meant: str | None) -> str:
    """The warning about a route that matches nothing."""
    hint = f"; did you mean {meant!r}?" if meant is not None else ""
    return f"onceward: {route!r} matches no route of the application, so it has no effect{hint}"
