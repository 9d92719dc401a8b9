-- Who may call, and what they may spend. Instants are microseconds since 1970 on the server's clock; money is whole
-- micro-units.
CREATE TABLE onceward_tenants (
    name text NOT NULL PRIMARY KEY,
    created_at bigint NOT NULL,
    -- NULL: the tenant does not pay in advance, and nothing is charged. What is reserved has been taken off already.
    balance bigint,
    quota_records bigint,
    quota_bytes bigint,
    used_records bigint NOT NULL DEFAULT 0,
    used_bytes bigint NOT NULL DEFAULT 0,
    erasing_at bigint
);

-- `digest` is a keyed hash; `pepper` names its key, which is not in the database. The secret is nowhere.
CREATE TABLE onceward_tokens (
    id text NOT NULL PRIMARY KEY,
    family text NOT NULL,
    tenant text NOT NULL REFERENCES onceward_tenants (name),
    environment text NOT NULL,
    role text NOT NULL,
    databases text,
    pepper text NOT NULL,
    digest bytea NOT NULL,
    created_at bigint NOT NULL,
    last_used_at bigint,
    expires_at bigint,
    revoked_at bigint,
    successor text
);

CREATE INDEX onceward_tokens_of_tenant ON onceward_tokens (tenant, id);

-- open -> committed | given_back | lapsed; lapsed -> committed, if it ran after all.
CREATE TABLE onceward_reservations (
    id text NOT NULL PRIMARY KEY,
    tenant text NOT NULL REFERENCES onceward_tenants (name),
    reference text NOT NULL,
    amount bigint NOT NULL,
    state text NOT NULL,
    lapses_at bigint NOT NULL,
    ended_at bigint,
    UNIQUE (tenant, reference)
);

-- What a sweep gives back, and what it forgets.
CREATE INDEX onceward_reservations_open ON onceward_reservations (lapses_at) WHERE state = 'open';
CREATE INDEX onceward_reservations_ended ON onceward_reservations (ended_at) WHERE ended_at IS NOT NULL;

-- A top-up that is sent again finds itself here.
CREATE TABLE onceward_topups (
    tenant text NOT NULL REFERENCES onceward_tenants (name),
    reference text NOT NULL,
    amount bigint NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, reference)
);

-- What is left of a tenant that was erased: a keyed digest of its name, and when.
CREATE TABLE onceward_erasures (
    digest bytea NOT NULL PRIMARY KEY,
    pepper text NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint
);

-- schema_version; counted_at and counted_us: when the tenants' records were last counted, and how long that took.
CREATE TABLE onceward_access (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_access (name, value) VALUES ('schema_version', 1), ('counted_at', 0), ('counted_us', 0);
