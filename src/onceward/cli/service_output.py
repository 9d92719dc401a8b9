"""
`onceward contract --service`: what a service with these settings publishes about itself, without starting it.

The document is the one that the service has at `/.well-known/idempotency`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from onceward._core.errors import ConfigurationError
from onceward.cli.output import print_json, print_text
from onceward.cli.text_tables import format_facts, format_table
from onceward.service.settings import load_settings


def print_service(config: str | None, *, as_json: bool) -> None:
    """Print it, for the settings of a file and of the environment."""
    for needed in ("starlette", "msgspec", "uvicorn"):
        if find_spec(needed) is None:
            raise ConfigurationError(f"the service needs {needed}: pip install 'onceward[serve]'")
    from onceward.service.app import contract_of_service  # Here: it needs what only serving needs.

    document = contract_of_service(load_settings({}, os.environ, config))
    if as_json:
        print_json(document)
        return
    print_text(f"Onceward {document['version']}: a request with a key runs once, and retries get its response.\n")
    print_text(format_facts([("retainSeconds", document["retainSeconds"]), *document["limits"].items()]))
    _print_refusals(document["refusals"], "Refusals of any address")
    for app in document["apps"]:
        print_text(f"\n{app['name']}\n")
        print_text("\n".join(f"  {one}" for one in app["endpoints"]))
        if app["keys"] is not None:
            facts = [(name, value) for name, value in app["keys"].items() if name != "endpoints"]
            print_text("\nKeys\n\n" + format_facts(facts))
        if app["limits"]:
            print_text("\nLimits\n\n" + format_facts(app["limits"].items()))
        _print_refusals(app["refusals"], "Refusals")


def _print_refusals(refusals: list[dict[str, Any]], title: str) -> None:
    rows = [(one["code"], one.get("kind", ""), one["status"], one["retry"], one["meaning"]) for one in refusals]
    print_text(f"\n{title}\n\n" + format_table(("CODE", "KIND", "STATUS", "RETRY", "MEANING"), rows, limit=None))
