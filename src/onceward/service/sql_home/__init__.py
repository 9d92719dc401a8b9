"""
Where the databases of a store's tenants are: in one folder, or on one PostgreSQL server. Known to the store itself.

A keyed SQL write and its record are in the same database file (or server), so a key runs once wherever the same file is
asked. Two services with one store and two folders would each have a `shop` of the same tenant, and one key would run in
both. So a folder has an identity, the store remembers it, and a service that comes with another one is refused.

    FOLDER/folder-id            the identity of a folder: made with it, moved and restored with it
    onceward_sql_homes          the one that this store's tenants have their databases in
    onceward_sql_holders        the services that have it open now: a copy of the folder is noticed by its place

May import: the core, `runtime`, `audit`, the tables of the stores, `service.private_file`.

Start with `home_table.py` (the rules), then `sql_home.py` (what a service does with them).
"""

from onceward.service.sql_home.folder_identity import IDENTITY, folder_home
from onceward.service.sql_home.home_table import FOLDER, POSTGRESQL, SCHEMA, SqlHome, SqlHomeElsewhere
from onceward.service.sql_home.sql_home import SqlHomeHold, adopt_sql_home, find_sql_home, hold_folder, hold_sql_home

__all__ = [
    "FOLDER",
    "IDENTITY",
    "POSTGRESQL",
    "SCHEMA",
    "SqlHome",
    "SqlHomeElsewhere",
    "SqlHomeHold",
    "adopt_sql_home",
    "find_sql_home",
    "folder_home",
    "hold_folder",
    "hold_sql_home",
]
