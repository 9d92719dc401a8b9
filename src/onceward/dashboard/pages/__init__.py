"""
The pages of every dashboard, in the order of the menu. Each module has its own, as `PAGES`.
"""

from onceward.dashboard.page import Page
from onceward.dashboard.pages import decisions, doubt, inbox, letters, now, outbox, plans, records, runs

PAGES: tuple[Page, ...] = (
    *now.PAGES,
    *records.PAGES,
    *doubt.PAGES,
    *letters.PAGES,
    *plans.PAGES,
    *runs.PAGES,
    *outbox.PAGES,
    *inbox.PAGES,
    *decisions.PAGES,
)

__all__ = ["PAGES"]
