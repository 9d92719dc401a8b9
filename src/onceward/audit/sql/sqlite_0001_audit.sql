-- What operators decided: who, when, why. Instants are microseconds since 1970 on the host's clock.
-- An entry never changes. What may have to be erased one day is in onceward_audit_texts: an entry has only salted
-- digests of it, so that a text can go and the chain still holds.
CREATE TABLE onceward_audit_entries (
    number INTEGER NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('intent', 'outcome')),
    -- The number of the intent that an outcome is about; of an intent, its own.
    decision INTEGER NOT NULL,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    via TEXT NOT NULL,
    outcome TEXT CHECK (outcome IN ('done', 'failed', 'unknown')),
    environment TEXT,
    -- Stands for a tenant, whose name is in onceward_audit_tenants and nowhere else.
    tag TEXT,
    digests TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE
) STRICT;

CREATE UNIQUE INDEX onceward_audit_outcomes ON onceward_audit_entries (decision) WHERE kind = 'outcome';
CREATE INDEX onceward_audit_of_tenant ON onceward_audit_entries (tag, number);

CREATE TABLE onceward_audit_texts (
    number INTEGER NOT NULL,
    part TEXT NOT NULL,
    salt TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (number, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE onceward_audit_tenants (
    tenant TEXT NOT NULL PRIMARY KEY,
    tag TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;

-- The last entry. Whoever writes the next one holds this row.
CREATE TABLE onceward_audit_head (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    number INTEGER NOT NULL,
    hash TEXT NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_audit_head (one, number, hash) VALUES (1, 0, '');

-- Against accidents: whoever owns the database can remove these, and the chain is there for that.
CREATE TRIGGER onceward_audit_no_update BEFORE UPDATE ON onceward_audit_entries
BEGIN
    SELECT RAISE(ABORT, 'the decision log is append-only');
END;

CREATE TRIGGER onceward_audit_no_delete BEFORE DELETE ON onceward_audit_entries
BEGIN
    SELECT RAISE(ABORT, 'the decision log is append-only');
END;

CREATE TABLE onceward_audit (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_audit (name, value) VALUES ('schema_version', 1), ('reasons_required', 0);
