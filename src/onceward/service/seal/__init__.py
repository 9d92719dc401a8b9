"""
Keys of tenants: what `onceward serve --seal-keys FILE` seals results under, one set for each tenant.

    seal = open_tenant_seal("sqlite:///records.db", Sealed.from_file("keys"), create=True)
    Gate(store, scope="live:acme", seal=seal)

May import: the core, `gate`, `service.access.scopes` and the tables of the stores.

Start with `tenant_seal.py`.
"""

from onceward.service.seal.tenant_seal import TenantSeal, erase_tenant_keys, open_tenant_seal

__all__ = ["TenantSeal", "erase_tenant_keys", "open_tenant_seal"]
