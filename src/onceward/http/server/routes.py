"""
Routes: paths with a profile of their own.

    Route("/charges", require_key=True, guarantee="keyed")
    Route("/reports/{id}/rows", methods=("POST",), guarantee="repeatable")
    Route("/internal/{rest:path}", skip=True)

The first route that matches counts. `{name}` is one segment of the path, `{name:path}` is the rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Unpack, cast

from onceward._core.errors import ConfigurationError
from onceward._core.reply import Headers
from onceward._core.terms import Terms
from onceward.http.server.handler_outcomes import gate_options
from onceward.http.server.profile import Profile, profile
from onceward.http.server.profile_overrides import ProfileOverrides, RouteOverrides
from onceward.http.server.request_fingerprint import BodyComparison
from onceward.http.server.request_identity import IdentityNames, identity_names
from onceward.http.server.responses import replay_marks

_PLACE = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(:path)?\}")


class Route:
    """A path, perhaps with methods, and the fields of the profile that differ there."""

    def __init__(
        self, path: str, *, methods: Iterable[str] | None = None, skip: bool = False, **changes: Unpack[RouteOverrides]
    ) -> None:
        if not isinstance(path, str) or not path.startswith("/"):
            raise ConfigurationError(f"a route must begin with a slash: /{path}")
        if skip and changes:
            raise ConfigurationError("a route with skip=True has no profile; leave out skip, or the other options")
        if isinstance(methods, str):
            raise ConfigurationError(f"methods must be a tuple: write ({methods!r},)")
        self.path = path
        self.methods = None if methods is None else frozenset(method.upper() for method in methods)
        self.skip = skip
        self.changes = changes
        self._pattern = re.compile(_pattern(path), re.DOTALL)  # A line end in a path is a character like any other.

    def matches(self, method: str, path: str) -> bool:
        """Whether this route applies to a request."""
        return (self.methods is None or method in self.methods) and self._pattern.fullmatch(path) is not None

    def fits(self, path: str) -> bool:
        """Whether this route applies to a path, with any method."""
        return self._pattern.fullmatch(path) is not None

    def __repr__(self) -> str:
        return f"Route({self.path!r})"


class Treatment(NamedTuple):
    """How requests to a route are handled."""

    profile: Profile
    name: str | None
    """The route's path, for logs and records; None where no route matched."""
    options: dict[str, Any]
    """The profile, as options of the gate's `call`."""
    terms: Terms
    """What the gate makes of them."""
    names: IdentityNames
    """The headers that identify a request here."""
    marks: tuple[Headers, Headers]
    """The headers that a replay is marked with: of a key, and of a step."""


TargetKey = tuple[str, str, bytes, bytes, bytes | None]
"""Method, path, path as it was sent, query and Content-Type."""


class RequestTarget(NamedTuple):
    """What is the same for every request with this method, path, query and Content-Type, whatever its key and body."""

    profile: Profile
    names: IdentityNames
    options: dict[str, Any]
    terms: Terms
    marks: tuple[Headers, Headers]
    name: str
    """What records and logs call its operations."""
    beginning: bytes
    """What its fingerprints begin with."""
    way: BodyComparison
    length_digits: int
    """A Content-Length with fewer digits is not longer than a body may be."""


class Routes:
    """The default profile of an app, and its routes."""

    def __init__(self, base: Profile, routes: Iterable[Route], agreed: Callable[..., Terms]) -> None:
        self._agreed = agreed
        self.targets: dict[TargetKey, RequestTarget] = {}
        """What these routes have come to; other routes begin with an empty table."""
        self.default = self._treatment(base, None)
        self._routes = [
            (route, None if route.skip else self._treatment(profile(base, **_changes(route)), route.path))
            for route in routes
        ]
        self.methods = frozenset().union(*(one.profile.methods for one in self.treatments()))
        """Every method that is handled somewhere: a request with another one passes through at once."""
        self.single = frozenset(name for one in self.treatments() for name in _identity_headers(one.profile))
        """The headers that identify a request, in lower case: each may occur once."""

    def _treatment(self, chosen: Profile, name: str | None) -> Treatment:
        options = gate_options(chosen)
        terms = self._agreed(**options)  # What the gate cannot do is refused here.
        return Treatment(chosen, name, options, terms, identity_names(chosen), replay_marks(chosen))

    def treatments(self) -> list[Treatment]:
        """Every treatment: the default, and those of the routes."""
        return [self.default, *(treatment for _, treatment in self._routes if treatment is not None)]

    def others(self) -> list[tuple[str, tuple[Profile, Terms] | None]]:
        """The routes as they are published: path, and profile with terms; None for skip=True."""
        return [(route.path, None if one is None else (one.profile, one.terms)) for route, one in self._routes]

    def find(self, method: str, path: str) -> Treatment | None:
        """How this request is handled; None: it passes through."""
        found: Treatment | None = self.default
        for route, treatment in self._routes:
            if route.matches(method, path):
                found = treatment
                break
        return found if found is not None and method in found.profile.methods else None


def _identity_headers(of: Profile) -> Iterable[bytes]:
    return (name.lower().encode("ascii") for name in (of.key_header, of.plan_header, of.step_header))


def _changes(route: Route) -> ProfileOverrides:
    # Methods of the route replace those of the profile.
    changes = cast("ProfileOverrides", {**route.changes})
    if route.methods is not None:
        changes["methods"] = tuple(sorted(route.methods))
    return changes


def _pattern(path: str) -> str:
    at, parts = 0, []
    for place in _PLACE.finditer(path):
        parts += [re.escape(path[at : place.start()]), ".*" if place.group(1) else "[^/]+"]
        at = place.end()
    rest = path[at:]
    if "{" in rest or "}" in rest:
        raise ConfigurationError(f"{path!r} is not a route: write a parameter as {{name}} or {{name:path}}")
    return "".join([*parts, re.escape(rest)])
