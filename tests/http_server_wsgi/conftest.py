"""Each framework's shop is started once, when a test needs it, and ended with the last test of its module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shop_client import Client, shop

FRAMEWORKS = ("wsgi", "flask", "django", "django-async", "django-async-blocking-gate", "rest-framework")


@pytest.fixture(scope="session", params=FRAMEWORKS)
def web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A shop in each framework."""
    with shop(request.param, tmp_path_factory.mktemp(request.param)) as client:
        yield client


@pytest.fixture(scope="session", params=("wsgi", "wsgiref"))
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A shop without a framework, on two servers."""
    with shop(request.param, tmp_path_factory.mktemp(request.param)) as client:
        yield client
