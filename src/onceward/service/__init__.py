"""
The HTTP service behind `onceward serve`.

Each of `sql`, `records`, `ledger`, `journal`, `hooks` and `mcp` has an `app.py` with its endpoints. They do not import
one another, and each can be mounted alone. `access` says who may call and what they may spend; `web` turns an HTTP
request into a call and its result into a response; `app` puts everything together; `settings` reads flags, the
environment and a file.

May import the library below it and `protocol`, never `client` or `cli`. Start with `app.open_service`, then
`web/endpoints.py`, then one `app.py`.
"""
