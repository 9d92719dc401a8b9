-- Messages on their way out, in the database of the effects that they tell of. Instants are microseconds since 1970 on
-- the server's clock.
CREATE TABLE onceward_outbox (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_outbox (name, value) VALUES ('schema_version', 0);

-- waiting -> delivered | dead; dead -> waiting, if an operator says so.
CREATE TABLE onceward_outbox_messages (
    -- The order in which messages were added; never given twice.
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text NOT NULL UNIQUE,
    endpoint text NOT NULL,
    topic text NOT NULL,
    aggregate text,
    payload bytea NOT NULL,
    content_type text NOT NULL,
    headers text NOT NULL,
    created_at bigint NOT NULL,
    state text NOT NULL DEFAULT 'waiting',
    -- When a relay may take it: after a wait, or when the lease of whoever has it runs out.
    due_at bigint NOT NULL,
    -- Counted when it is taken, so that a message that kills relays is given up one day.
    attempts bigint NOT NULL DEFAULT 0,
    -- Rises whenever it is taken: whoever brings back a lower one has lost it.
    fence bigint NOT NULL DEFAULT 0,
    reason text,
    ended_at bigint
);

CREATE INDEX onceward_outbox_waiting ON onceward_outbox_messages (endpoint, seq) WHERE state = 'waiting';

CREATE INDEX onceward_outbox_in_order ON onceward_outbox_messages (endpoint, aggregate, seq) WHERE state = 'waiting';

CREATE INDEX onceward_outbox_ended ON onceward_outbox_messages (state, ended_at) WHERE state <> 'waiting';

-- Endpoints that said that they are no more. Their messages wait until an operator enables them.
CREATE TABLE onceward_outbox_disabled (
    endpoint text NOT NULL PRIMARY KEY,
    disabled_at bigint NOT NULL,
    reason text NOT NULL
);
