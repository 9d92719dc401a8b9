"""
The journal of calls over HTTP, for admin tokens of a tenant.

`journal_observer` notes calls as they begin and end; `app` shows them. May import `access`, `web` and the library's
`journal`, and no other app. Start with `app.py`.
"""
