"""
The records API, for operators: see what is in doubt, and decide it.
"""

from onceward.service.records.app import RecordsApp

__all__ = ["RecordsApp"]
