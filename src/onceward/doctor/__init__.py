"""
The doctor: the checklist before production, held against a real project; and one sentence for every key.

A box of the checklist is a row with a question and a function (`checklist.py`, `disciplines.py`). Each source of
evidence has a file that reads it: `code_reader.py` and `sql_reader.py` (through the linter), `settings_reader.py` (what
people state in pyproject.toml), `store_reader.py`, `journal_reader.py`, `operations.py` (what the code declares).
Nothing that is read is run. Only `module_import.py` imports, in another process, and only what it is told to.

What is not known is not green: a box is filled by evidence, or it says what to do.

May import: everything but `cli`, which is the only one that imports this package. Start reading with `box.py`, then
`examination.py`.
"""
