"""
The records of a tenant over HTTP, for operators: see what is in doubt, and decide it.

May import `access`, `web` and `gate`, and no other app. Start with `app.py`, which is all of it.
"""

from onceward.service.records.app import RecordsApp

__all__ = ["RecordsApp"]
