-- Deltas of customers' balances, chained. Instants are microseconds since 1970; amounts are whole billionths.
-- `scope` is environment and tenant. `head` is the hash of the last entry,
-- `closed` the last period with a checkpoint.
CREATE TABLE onceward_ledger_customers (
    scope TEXT NOT NULL,
    customer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    head TEXT NOT NULL,
    closed TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (scope, customer)
) STRICT, WITHOUT ROWID;

-- An entry is never changed but for its verdict: queued -> verified | failed. `hash` covers what it says and the entry
-- before it, `seal` covers the hash and the verdict. `reference` carries its environment.
CREATE TABLE onceward_ledger_entries (
    id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    customer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    amount INTEGER NOT NULL,
    reason TEXT NOT NULL,
    reference TEXT,
    metadata TEXT,
    corrects TEXT,
    period TEXT NOT NULL,
    booked_at INTEGER NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    status TEXT NOT NULL,
    failure TEXT,
    verified_at INTEGER,
    seal TEXT NOT NULL,
    FOREIGN KEY (scope, customer) REFERENCES onceward_ledger_customers (scope, customer)
) STRICT;

CREATE UNIQUE INDEX onceward_ledger_entries_seq ON onceward_ledger_entries (scope, customer, seq);
CREATE UNIQUE INDEX onceward_ledger_entries_reference ON onceward_ledger_entries (scope, reference)
    WHERE reference IS NOT NULL;
-- What a derivation adds up: the periods since a checkpoint, without looking at the rows.
CREATE INDEX onceward_ledger_entries_period ON onceward_ledger_entries (scope, customer, period, status, amount);
CREATE INDEX onceward_ledger_entries_queued ON onceward_ledger_entries (booked_at, id) WHERE status = 'queued';

-- A closed period. `root` covers the seals of its entries, `hash` everything here and the checkpoint before.
CREATE TABLE onceward_ledger_checkpoints (
    id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    customer TEXT NOT NULL,
    number INTEGER NOT NULL,
    period TEXT NOT NULL,
    balance TEXT NOT NULL,
    deltas INTEGER NOT NULL,
    root TEXT NOT NULL,
    closed_at INTEGER NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL,
    UNIQUE (scope, customer, period),
    UNIQUE (scope, customer, number),
    FOREIGN KEY (scope, customer) REFERENCES onceward_ledger_customers (scope, customer)
) STRICT;

CREATE TABLE onceward_ledger (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;

INSERT INTO onceward_ledger (name, value) VALUES ('schema_version', 1);
