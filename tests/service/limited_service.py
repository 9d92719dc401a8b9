"""`onceward` whose services have other limits for tenants' SQL: JSON in the first argument, the rest is its own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from onceward.cli import main
from onceward.service import app
from onceward.service.settings import Settings
from onceward.service.sql.limits import Limits

usual = app.limits_of


def limits_of(settings: Settings) -> Limits:
    """The usual ones, changed."""
    return replace(usual(settings), **json.loads(sys.argv[1]))


if __name__ == "__main__":
    app.limits_of = limits_of
    sys.exit(main(sys.argv[2:]))
