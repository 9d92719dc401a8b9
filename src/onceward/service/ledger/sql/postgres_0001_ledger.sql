-- Deltas of customers' balances, chained. Instants are microseconds since 1970; amounts are whole billionths.
-- `scope` is environment and tenant. `head` is the hash of the last entry,
-- `closed` the last period with a checkpoint.
CREATE TABLE onceward_ledger_customers (
    scope text NOT NULL,
    customer text NOT NULL,
    seq bigint NOT NULL,
    head text NOT NULL,
    closed text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (scope, customer)
);

-- An entry is never changed but for its verdict: queued -> verified | failed. `hash` covers what it says and the entry
-- before it, `seal` covers the hash and the verdict. `reference` carries its environment.
CREATE TABLE onceward_ledger_entries (
    id text NOT NULL PRIMARY KEY,
    scope text NOT NULL,
    customer text NOT NULL,
    seq bigint NOT NULL,
    amount bigint NOT NULL,
    reason text NOT NULL,
    reference text,
    metadata text,
    corrects text,
    period text NOT NULL,
    booked_at bigint NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    status text NOT NULL,
    failure text,
    verified_at bigint,
    seal text NOT NULL,
    FOREIGN KEY (scope, customer) REFERENCES onceward_ledger_customers (scope, customer)
);

CREATE UNIQUE INDEX onceward_ledger_entries_seq ON onceward_ledger_entries (scope, customer, seq);
CREATE UNIQUE INDEX onceward_ledger_entries_reference ON onceward_ledger_entries (scope, reference)
    WHERE reference IS NOT NULL;
-- What a derivation adds up: the periods since a checkpoint, without looking at the rows.
CREATE INDEX onceward_ledger_entries_period ON onceward_ledger_entries (scope, customer, period, status, amount);
CREATE INDEX onceward_ledger_entries_queued ON onceward_ledger_entries (booked_at, id) WHERE status = 'queued';

-- A closed period. `root` covers the seals of its entries, `hash` everything here and the checkpoint before.
CREATE TABLE onceward_ledger_checkpoints (
    id text NOT NULL PRIMARY KEY,
    scope text NOT NULL,
    customer text NOT NULL,
    number bigint NOT NULL,
    period text NOT NULL,
    balance text NOT NULL,
    deltas bigint NOT NULL,
    root text NOT NULL,
    closed_at bigint NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL,
    UNIQUE (scope, customer, period),
    UNIQUE (scope, customer, number),
    FOREIGN KEY (scope, customer) REFERENCES onceward_ledger_customers (scope, customer)
);

CREATE TABLE onceward_ledger (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_ledger (name, value) VALUES ('schema_version', 1);
