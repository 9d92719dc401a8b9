"""
The linter: hazards to read before the first duplicate, in Python files and in SQL.

    findings = lint_files([Path("src")], LintSettings(), suffixes=(".py",), check=check_python)

Nothing that is read is run or imported. A rule has a code: OW1xx is about Python (`lint/python/`), OW2xx about SQL
(`lint/sql/`), OW9xx about the linter itself (a file that cannot be read, an ignore that ignores nothing).

May import: `_core`, and a parser's library only in the file that calls it. Only `doctor/` and `cli/` import this
package. Start reading with `findings.py` (what a rule and a finding are), then `lint_run.py` (from paths to findings).
"""
