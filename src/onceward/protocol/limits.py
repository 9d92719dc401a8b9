"""
How much a request may hold. The client checks before it sends, and the service checks again.
"""

from __future__ import annotations

import re

SQL_KEY_CHARACTERS_MAX = 200
"""Of a key, a plan or a step that goes with SQL."""
BATCH_MAX = 100
"""Deltas in one batch."""
REASON_CHARACTERS_MAX = 500
METADATA_BYTES_MAX = 4_096
CUSTOMER_CHARACTERS_MAX = 128
CUSTOMER_PATTERN = rf"^[A-Za-z0-9_.:-]{{1,{CUSTOMER_CHARACTERS_MAX}}}\Z"

_CUSTOMER = re.compile(CUSTOMER_PATTERN, re.ASCII)


def is_customer(customer: object) -> bool:
    """Whether this can be the id of a customer."""
    return isinstance(customer, str) and _CUSTOMER.match(customer) is not None
