"""
Prepares PostgreSQL for the service, once: what `onceward tenant prepare` prints, and the password of its role.

Run by the service `prepare` of compose.yaml. ADMIN_URL is the administrator's, ONCEWARD_PASSWORD the service's.
"""

from __future__ import annotations

import os
import subprocess

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Literal


def main() -> None:
    """Run the script, then let the role log in."""
    url = os.environ["ADMIN_URL"]
    database = str(conninfo_to_dict(url)["dbname"])
    command = ["onceward", "tenant", "prepare", "--database", database]
    script = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)
        connection.execute(SQL("ALTER ROLE onceward PASSWORD {}").format(Literal(os.environ["ONCEWARD_PASSWORD"])))
    print(f"{database} is ready for the role onceward", flush=True)


if __name__ == "__main__":
    main()
