"""
`GET /v1/usage`: what a tenant has used, holds and has left.

May import `access` and `web`, and no other app of the service. Start with `app.py`.
"""
