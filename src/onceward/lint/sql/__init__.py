"""
SQL for the linter: INSERTs classified against the real schema, migrations in their order, routines.

Texts are read by real parsers, which are the extra `onceward[lint]`. PostgreSQL by its own parser, libpg_query, through
`pgparse`: no dependencies, JSON, PL/pgSQL, and the places of names. `postgast` binds the same library by protobuf,
which brings a dependency, and it ended the process on `SELECT 1+1+...` of 100 KB, where pgparse raises; `pglast` is
GPL-3. SQLite and T-SQL by `sqlglot`, with what it does not read (REPLACE INTO, ON CONFLICT of constraints, TRY ...
CATCH) done here.
Nothing of what is read is run. What is long or deep is parsed in another process, under limits.

May import: `_core`, the linter's own frame, and the parsers only in the readers (by name, when the first text is read).
Start reading with `statements.py` (what the checks know of a statement), then `insert_judge.py` (A, B or C) and
`sql_lint.py` (from files to findings). `parsing.py` is how a text becomes statements.
"""
