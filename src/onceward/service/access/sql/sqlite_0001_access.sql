-- Who may call, and what they may spend. Instants are microseconds since 1970 on the host's clock; money is whole
-- micro-units.
CREATE TABLE onceward_tenants (
    name TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    -- NULL: the tenant does not pay in advance, and nothing is charged. What is reserved has been taken off already.
    balance INTEGER,
    quota_records INTEGER,
    quota_bytes INTEGER,
    used_records INTEGER NOT NULL DEFAULT 0,
    used_bytes INTEGER NOT NULL DEFAULT 0,
    erasing_at INTEGER
) STRICT, WITHOUT ROWID;

-- `digest` is a keyed hash; `pepper` names its key, which is not in the database. The secret is nowhere.
CREATE TABLE onceward_tokens (
    id TEXT NOT NULL PRIMARY KEY,
    family TEXT NOT NULL,
    tenant TEXT NOT NULL REFERENCES onceward_tenants (name),
    environment TEXT NOT NULL,
    role TEXT NOT NULL,
    databases TEXT,
    pepper TEXT NOT NULL,
    digest BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at INTEGER,
    revoked_at INTEGER,
    successor TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_tokens_of_tenant ON onceward_tokens (tenant, id);

-- open -> committed | given_back | lapsed; lapsed -> committed, if it ran after all.
CREATE TABLE onceward_reservations (
    id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL REFERENCES onceward_tenants (name),
    reference TEXT NOT NULL,
    amount INTEGER NOT NULL,
    state TEXT NOT NULL,
    lapses_at INTEGER NOT NULL,
    ended_at INTEGER,
    UNIQUE (tenant, reference)
) STRICT, WITHOUT ROWID;

-- What a sweep gives back, and what it forgets.
CREATE INDEX onceward_reservations_open ON onceward_reservations (lapses_at) WHERE state = 'open';
CREATE INDEX onceward_reservations_ended ON onceward_reservations (ended_at) WHERE ended_at IS NOT NULL;

-- A top-up that is sent again finds itself here.
CREATE TABLE onceward_topups (
    tenant TEXT NOT NULL REFERENCES onceward_tenants (name),
    reference TEXT NOT NULL,
    amount INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, reference)
) STRICT, WITHOUT ROWID;

-- What is left of a tenant that was erased: a keyed digest of its name, and when.
CREATE TABLE onceward_erasures (
    digest BLOB NOT NULL PRIMARY KEY,
    pepper TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER
) STRICT, WITHOUT ROWID;

-- schema_version; counted_at and counted_us: when the tenants' records were last counted, and how long that took.
CREATE TABLE onceward_access (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_access (name, value) VALUES ('schema_version', 1), ('counted_at', 0), ('counted_us', 0);
