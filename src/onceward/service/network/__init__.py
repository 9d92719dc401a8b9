"""
What stands between sockets and the application: listening, accepting, TLS, and how many may come.

It imports `service.access` (accounts, addresses), `service.web.problems` and uvicorn, and no app. Start with
`listener.py`, where a connection comes in; `http_protocol.py` is one connection, `server.py` puts everything together.
"""
