"""
How many records there are, without counting them.

Ids are hashes. So the first thousand in order of id are a fair sample of all of them, and the last of these ids says
how large a share of all ids that is: if it is at a hundredth of the way, there are about a hundred thousand.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from onceward._core.record import Record, shown_state
from onceward._core.store_protocols import Selection, Store

SAMPLE_RECORDS = 1_000
"""Read for an estimate: a share of a hundredth is then told to a tenth or so of itself."""
PAGE = 250
_ALL_IDS = 1 << 256


class Sample(NamedTuple):
    """Some records, without their results, and the share of all that they are."""

    records: list[Record]
    share: float
    """1.0: these are all."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing was left out."""
        return self.share >= 1.0

    def estimate(self, count: int) -> int:
        """How many there are of what was found so often, rounded to two digits if it is an estimate."""
        if self.is_exact or not count:
            return count
        number = count / self.share
        return int(float(f"{number:.1e}"))

    def states(self) -> dict[str, int]:
        """How many records there are in each state, as people see them."""
        counted = Counter(shown_state(one) for one in self.records)
        return {state: self.estimate(count) for state, count in sorted(counted.items())}


def read_sample(store: Store, selection: Selection) -> Sample:
    """A sample of a store's records: at most `SAMPLE_RECORDS` are read."""
    found: list[Record] = []
    while len(found) < SAMPLE_RECORDS:
        page = store.scan(found[-1].id if found else b"", PAGE, selection)
        found += [one._replace(result=None) for one in page]
        if len(page) < PAGE:
            return Sample(found, 1.0)
    return Sample(found, int.from_bytes(found[-1].id, "big") / _ALL_IDS)
