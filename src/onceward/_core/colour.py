"""
Which of the two texts this is: true in the awaiting text, and gone from the blocking one that is made of it.

    if AWAITS: ...      what awaiting callers need
    else: ...           what blocking callers need instead, kept word for word
"""

from __future__ import annotations

AWAITS = True
"""Type checkers are told that this is always true, so that they read one side of each branch in each text."""
