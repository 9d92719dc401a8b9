"""
Which versions of SQLite may run strangers' SQL.

The least one is 3.39.2, the first without CVE-2022-35737 (a length that overflows), and with everything that the engine
uses. 3.43.0 and 3.43.1 read freed memory while they parse JSON (CVE-2024-0232), which any tenant may ask for. Other
known faults need statements that our limits do not let through (`limits.py`): more than 32,767 columns in an aggregate
(CVE-2025-6965, fixed in 3.50.2; 64 tables of 200 columns are 12,800), as many terms in ORDER BY (CVE-2025-7458, fixed
in 3.41.2; 200 are taken), texts of gigabytes in concat_ws (CVE-2025-3277, fixed in 3.49.1; a text has a megabyte).

A number says nothing of the repairs that a distribution has made to an older version: keep its packages up to date.
"""

from __future__ import annotations

import sqlite3

from onceward._core.errors import ConfigurationError

LEAST = (3, 39, 2)
REFUSED = frozenset(((3, 43, 0), (3, 43, 1)))


def check_sqlite_version(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Refuse a version that is not for strangers' SQL."""
    if version >= LEAST and version not in REFUSED:
        return
    shown, least = (".".join(map(str, one)) for one in (version, LEAST))
    why = "has a known fault that any SQL can use" if version in REFUSED else f"is older than {least}"
    raise ConfigurationError(
        f"SQLite {shown} {why}, and cannot be used to run other people's SQL. Update the library libsqlite3 that "
        f"Python "
        f"uses, or use a Python that comes with a newer one ({least} or later, and not 3.43.0 or 3.43.1)"
    )
