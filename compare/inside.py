"""
Runs the inner half of a question in a peer's own interpreter.

    python -m compare.inside retry_after tenacity FOLDER URL

The question's module has `inside(adapter, folder, url)`; what it returns is printed as JSON.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path

from compare.peers import module_of


def main() -> None:
    """Print what the inner half saw."""
    question, adapter, folder, url = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    module = importlib.import_module(f"compare.questions.{question}")
    seen = module.inside(importlib.import_module(module_of(adapter)), Path(folder), url)
    print(json.dumps(seen), flush=True)
    os._exit(0)  # A peer's threads do not keep us.


if __name__ == "__main__":
    main()
