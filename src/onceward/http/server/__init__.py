"""
HTTP, server side: what is decided about a request. The middlewares (`onceward.http.asgi`, `.wsgi`, `.django`) act.
"""
