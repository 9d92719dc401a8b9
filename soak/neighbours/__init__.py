"""
Eight attackers beside two honest tenants: what each costs is on its own account, and the honest notice little.

    python -m soak --scenario neighbours

`rounds.py` runs it, `load.py` is the process that sends (`honest.py`, `attacks.py`), `outcome.py` judges.
"""
