"""
What a failure means: did it happen, whose trouble is it, what may be done, and how long to wait.
"""

from onceward._core.classifier import Classifier, should_retry
from onceward._core.verdict import Action, Certainty, Kind, Verdict

__all__ = [
    "Action",
    "Certainty",
    "Classifier",
    "Kind",
    "Verdict",
    "should_retry",
]
