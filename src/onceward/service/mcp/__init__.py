"""
`/mcp`: the service's own tools for agents, without any code of theirs (`onceward serve --mcp`).

MCP over streamable HTTP, answered request by request: no session, no stream. Each tool is a call of the service's own
API with the caller's own token, so that permissions, prices, quotas, keys and the journal are those of the API.

May import `_core`, `protocol`, `access`, `web` and the names of `agents/mcp_fields`, and no other app.
Start reading with `tools.py` (what a model sees), then `app.py`.
"""
