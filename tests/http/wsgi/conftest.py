"""Each framework's shop is started once in a run, when a test first needs it, whatever the order of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from shop_client import Client, shop

FRAMEWORKS = ("wsgi", "flask", "django", "django-async", "django-async-blocking-gate", "rest-framework")


@pytest.fixture(scope="session")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Client]]:
    """A shop by its name."""
    started: dict[str, Client] = {}
    with ExitStack() as stack:

        def find(name: str) -> Client:
            if name not in started:
                started[name] = stack.enter_context(shop(name, tmp_path_factory.mktemp(name)))
            return started[name]

        yield find


@pytest.fixture(params=FRAMEWORKS)
def web(request: pytest.FixtureRequest, shops: Callable[[str], Client]) -> Client:
    """A shop in each framework."""
    return shops(request.param)


@pytest.fixture(params=("wsgi", "wsgiref"))
def bare(request: pytest.FixtureRequest, shops: Callable[[str], Client]) -> Client:
    """A shop without a framework, on two servers."""
    return shops(request.param)


@pytest.fixture(params=("django-project", "django-async-project"))
def project(request: pytest.FixtureRequest, shops: Callable[[str], Client]) -> Client:
    """A Django project, on waitress and on uvicorn."""
    return shops(request.param)
