"""
`onceward mcp`: any MCP server behind the gate, with its code untouched.

    judge = CallJudge(gate, gate.run("order-42"), tools, trusts=False)
    proxy = McpProxy(judge, tools, client=ClientOutput(1), server=server, note=print)
    code = await serve(proxy, ClientInput(0), server, print, GRACE_SECONDS)

The client's lines come in on stdin and the server's go out on stdout, byte by byte, except for `tools/call` of a tool
that is not read-only: it is claimed before the server sees it, and its result is stored before the client sees it.

    client -> ClientInput -> McpProxy -> ServerProcess | HttpLink -> server

May import: what `agents` may; no MCP library, because it must not rewrite what it passes on. Start reading with
`messages.py` (what a line means, and which lines nobody can be sure of), then `proxy.py`.
"""
