-- What operators decided: who, when, why. Instants are microseconds since 1970 on the server's clock.
-- An entry never changes. What may have to be erased one day is in onceward_audit_texts: an entry has only salted
-- digests of it, so that a text can go and the chain still holds.
CREATE TABLE onceward_audit_entries (
    number bigint NOT NULL PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('intent', 'outcome')),
    -- The number of the intent that an outcome is about; of an intent, its own.
    decision bigint NOT NULL,
    at bigint NOT NULL,
    action text NOT NULL,
    via text NOT NULL,
    outcome text CHECK (outcome IN ('done', 'failed', 'unknown')),
    environment text,
    -- Stands for a tenant, whose name is in onceward_audit_tenants and nowhere else.
    tag text,
    digests text NOT NULL,
    previous text NOT NULL,
    hash text NOT NULL UNIQUE
);

CREATE UNIQUE INDEX onceward_audit_outcomes ON onceward_audit_entries (decision) WHERE kind = 'outcome';
CREATE INDEX onceward_audit_of_tenant ON onceward_audit_entries (tag, number);

CREATE TABLE onceward_audit_texts (
    number bigint NOT NULL,
    part text NOT NULL,
    salt text NOT NULL,
    text text NOT NULL,
    PRIMARY KEY (number, part)
);

CREATE TABLE onceward_audit_tenants (
    tenant text NOT NULL PRIMARY KEY,
    tag text NOT NULL UNIQUE
);

-- The last entry. Whoever writes the next one holds this row.
CREATE TABLE onceward_audit_head (
    one bigint NOT NULL PRIMARY KEY CHECK (one = 1),
    number bigint NOT NULL,
    hash text NOT NULL
);

INSERT INTO onceward_audit_head (one, number, hash) VALUES (1, 0, '');

-- Against accidents: whoever owns the database can remove this, and the chain is there for that.
CREATE FUNCTION onceward_audit_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the decision log is append-only';
END
$$;

CREATE TRIGGER onceward_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON onceward_audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION onceward_audit_append_only();

CREATE TABLE onceward_audit (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_audit (name, value) VALUES ('schema_version', 1), ('reasons_required', 0);
