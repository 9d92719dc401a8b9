"""
What `MODULE:NAME` names, for the commands that work with a user's own code.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from onceward._core.codec import message_of, type_name
from onceward._core.errors import ConfigurationError
from onceward.cli import exit_codes
from onceward.cli.text_tables import shorten

MESSAGE_CHARACTERS_MAX = 300
"""Of an error that is not ours, on the command line."""


def import_named(option: str, path: str, what: str) -> Any:
    """What MODULE:NAME names, looked for as `python -m` does: in the current folder, too."""
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise exit_codes.UsageError(f"{option} takes MODULE:NAME, such as shop:{option[2:]}, not {path[:100]!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{option} {path}: there is no module {error.name!r} to import; run this in the folder of your app "
            f"(this is {Path.cwd()}), or set PYTHONPATH"
        ) from None
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"{option} {path}: importing {module_name} raised {type_name(type(error))}: "
            f"{shorten(message_of(error), MESSAGE_CHARACTERS_MAX)}"
        ) from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"{option} {path}: {module_name} has no {attribute!r}; name {what}")
        found = getattr(found, name)
    return found
