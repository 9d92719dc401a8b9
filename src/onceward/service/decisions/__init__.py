"""
What operators decided about a tenant, for the tenant's own admin tokens.

May import `access`, `web` and `audit`, and no other app. Start with `app.py`, which is all of it.
"""

from onceward.service.decisions.app import DecisionsApp

__all__ = ["DecisionsApp"]
