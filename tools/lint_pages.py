"""
Write the page of every lint rule from its row: the words and examples of `onceward lint explain`, for the docs.

    python tools/lint_pages.py            write docs/reference/lint/OW*.md
    python tools/lint_pages.py --check    exit code 1 if a page is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

from onceward.lint.findings import Rule
from onceward.lint.rule_table import all_rules

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference" / "lint"


def page_of(rule: Rule) -> str:
    """The page of one rule."""
    return (
        f"# {rule.code}: {rule.name}\n\n{rule.summary[0].upper()}{rule.summary[1:]} ({rule.severity.value}).\n\n"
        f"{rule.why}\n\n## Bad\n\n{_block(rule, rule.bad)}\n## Good\n\n{_block(rule, rule.good)}\n"
        f"`onceward lint explain {rule.code}` prints this page. [All rules](../lint.md)\n"
    )


def _block(rule: Rule, example: str) -> str:
    if rule.language == "python":
        return f"```python no-run\n# not run: an example for the linter\n{example}```\n"
    return f"```{rule.language}\n{example}```\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or compare the pages."""
    check = "--check" in (sys.argv[1:] if arguments is None else arguments)
    pages = {PAGES / f"{rule.code}.md": page_of(rule) for rule in all_rules().values()}
    stale = [path for path, text in pages.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in PAGES.glob("*.md") if path not in pages]
    for path in stale:
        print(f"{path.name}: not as its rule says" if check else f"{path.name}: written")
        if not check and path in pages:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
