"""
What an application's own routes say: which of them carry a decorator, and which `Route` of ours matches none of them.

    Starlette, FastAPI     `app.routes`, mounted ones too
    Flask                  `app.url_map`
    Django                 has a middleware of its own, which asks its resolver
    anything else          not known: nothing is said

Asked once, when the application starts or its first request comes: by then its routes are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from onceward.http.serving.profile import profile
from onceward.http.serving.routes import Route

V = TypeVar("V", bound=Callable[..., Any])

CHANGES = "onceward_changes"
"""Where a handler keeps what its decorator said: a tuple of the changes, or of None."""

SAMPLES = ("x", "1", "00000000-0000-4000-8000-000000000000", "2026-11-16")
"""What may stand in a path's places, so that one of them fits: a word, a number, a UUID, a date."""

LEVELS_MAX = 30
_PLACE = re.compile(r"\{[^{}]*\}|<[^<>]*>")


def idempotent(**changes: Any) -> Callable[[V], V]:
    """Treat this handler otherwise than the app as a whole: any field of a profile. Put it nearest to the function."""
    profile(**changes)  # Refused here, where it is written, if it cannot work.
    return lambda handler: _said(handler, changes)


def not_idempotent(handler: V) -> V:
    """Let requests to this handler pass, whatever they carry."""
    return _said(handler, None)


def _said(handler: V, changes: dict[str, Any] | None) -> V:
    setattr(handler, CHANGES, (changes,))
    return handler


class Known(NamedTuple):
    """One route of the application."""

    path: str
    """With `{name}` for one segment, `{name:path}` for whatever follows."""
    methods: frozenset[str]
    handler: Any
    open_ended: bool = False
    """Whether something unknown is mounted there: any path below it may be one of its own."""


def routes_of(app: Any) -> list[Known] | None:
    """The routes of an application, or of the one inside some middlewares; None if it does not tell."""
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


def _of_flask(app: Any, rule: Any) -> Known:
    def place(found: re.Match[str]) -> str:
        kind, _, name = found[0].strip("<>").rpartition(":")
        return f"{{{name}:path}}" if kind.startswith("path") else f"{{{name}}}"

    path = re.sub(r"<[^<>]*>", place, rule.rule)
    return Known(path, frozenset(rule.methods or ()), app.view_functions.get(rule.endpoint))


def _of_starlette(routes: Iterable[Any], prefix: str) -> Iterable[Known]:
    for route in routes:
        path = getattr(route, "path", None)
        if not isinstance(path, str):
            included = getattr(route, "effective_route_contexts", None)  # A router that FastAPI included.
            if included is None:
                yield Known(prefix + "/{rest:path}", frozenset(), None, open_ended=True)
            else:
                yield from _of_starlette(included(), prefix)
            continue
        path = prefix + re.sub(r"\{(\w+):(?!path\})\w+\}", r"{\1}", path)
        inner = getattr(route, "routes", None)
        if inner:
            yield from _of_starlette(inner, path)
        elif hasattr(route, "endpoint"):
            yield Known(path, frozenset(getattr(route, "methods", None) or ()), route.endpoint)
        else:
            yield Known(path.rstrip("/") + "/{rest:path}", frozenset(), None, open_ended=True)


def marked(known: Iterable[Known], methods: frozenset[str]) -> list[Route]:
    """The decorators of the application's handlers, as routes. `methods` are those that are treated at all."""
    found = []
    for one in known:
        said = getattr(one.handler, CHANGES, None)
        if said is None:
            continue
        here = one.methods & methods if one.methods else methods
        if said[0] is None:
            found.append(Route(one.path, methods=here, skip=True))
        else:
            changes = {"methods": here, **said[0]}
            found.append(Route(one.path, **changes))
    return found


def unmatched(routes: Iterable[Route], known: list[Known]) -> list[tuple[Route, str | None]]:
    """The routes that no request of this application can match, each with the path that may be meant."""
    patterns = [Route(one.path) for one in known]
    paths = [one.path for one in known if not one.open_ended]
    samples = {sample for one in known for sample in samples_of(one.path)}
    lost = []
    for route in routes:
        own = samples_of(route.path)
        if any(route.fits(sample) for sample in samples) or any(one.fits(path) for one in patterns for path in own):
            continue
        lost.append((route, next(iter(get_close_matches(route.path, paths, 1)), None)))
    return lost


def samples_of(path: str) -> list[str]:
    """Paths that a route may be asked with."""
    return [_PLACE.sub(sample, path) for sample in SAMPLES]


def warning(route: Route, meant: str | None) -> str:
    """What is said of a route that matches nothing."""
    hint = f"; did you mean {meant!r}?" if meant is not None else ""
    return f"onceward: {route!r} matches none of the application's routes, so what it says is in force nowhere{hint}"
