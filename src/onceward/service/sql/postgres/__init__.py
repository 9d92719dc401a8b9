"""
Tenants' SQL on PostgreSQL: databases are schemas, keys and effects share a transaction.

Four layers keep tenants apart, and each holds something that the others do not: grants (`preparation`), an allow-list
by PostgreSQL's own parser (`statement_checker`), the extended protocol (`session`), and limits for each transaction
with a deadline for the whole request (`session`, `tenant_transaction`). May import what `service.sql` may.
Start with `engine.py`, then `tenant_transaction.py`.
"""

from onceward.service.sql.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
