"""
The dashboard: pages that show what a store knows, and let people decide. `onceward dashboard`, and `/dashboard` of a
service.

    data        what is asked of a store, in bounded reads (`data.py`, `sampling.py`, `glances.py`)
    pages       one module for each page; a page is a function from what was asked to HTML
    sessions    who looks, what they may do, and proof that a form came from a page of ours (`sessions.py`)

Pages are made on the server and work without script; the one script there is refreshes them. May import: `_core`,
`runtime`, `stores`, `audit`, `gate`, `messaging`, `journal`, and Starlette. Start with `app.py`, then `data.py`.
"""

from onceward.dashboard.app import Dashboard
from onceward.dashboard.data import DashboardData
from onceward.dashboard.sessions import DashboardRole, Principal

__all__ = ["Dashboard", "DashboardData", "DashboardRole", "Principal"]
