"""The subjects: one module each."""

from __future__ import annotations

from soak.subject import Maker
from soak.subjects.ledger import Deltas
from soak.subjects.messages import Messages
from soak.subjects.sql import SqlWrites

SUBJECTS: dict[str, Maker] = {"sql": SqlWrites, "ledger": Deltas, "messages": Messages}
