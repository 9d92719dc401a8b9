"""
What the service and its client agree on: paths, header names, limits, amounts, tokens, SQL values in JSON, errors.

Each is defined here once. Imports the standard library and `_core` only, so that importing the client loads nothing of
the server. Start with `paths`, then `errors`.
"""
