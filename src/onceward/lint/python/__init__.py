"""
The rules about Python: OW1xx. The syntax tree is read; nothing is run or imported.

Precise rather than clever: a name counts as what the file itself shows it to be (an import, a plain assignment), and
what is not shown is not reported. Start reading with `rules.py` (the words) and `checks.py` (the table of checks).
"""
