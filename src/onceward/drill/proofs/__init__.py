"""
The proofs, one small file each: a `Proof`, and the function that runs it. `PROOFS` is all of them, in order.

May import: `drill` and what it may import. Start reading with retry.py, then kill.py.
"""

from onceward.drill.proof import Proof
from onceward.drill.proofs.changed_body import CHANGED_BODY
from onceward.drill.proofs.clock_jump import CLOCK_JUMP
from onceward.drill.proofs.environments import ENVIRONMENTS_APART
from onceward.drill.proofs.expiry import EXPIRY
from onceward.drill.proofs.in_flight import IN_FLIGHT
from onceward.drill.proofs.kill import KILL
from onceward.drill.proofs.late_finisher import LATE_FINISHER
from onceward.drill.proofs.plan import PLAN
from onceward.drill.proofs.race import RACE
from onceward.drill.proofs.relay import RELAY
from onceward.drill.proofs.retry import RETRY
from onceward.drill.proofs.store_away import STORE_AWAY
from onceward.drill.proofs.webhook import WEBHOOK

__all__ = ["PROOFS"]

PROOFS: dict[str, Proof] = {
    proof.name: proof
    for proof in (
        RETRY,
        RACE,
        KILL,
        LATE_FINISHER,
        IN_FLIGHT,
        CHANGED_BODY,
        EXPIRY,
        CLOCK_JUMP,
        PLAN,
        RELAY,
        WEBHOOK,
        ENVIRONMENTS_APART,
        STORE_AWAY,
    )
}
