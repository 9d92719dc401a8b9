-- Messages on their way out, in the database of the effects that they tell of. Instants are microseconds since 1970 on
-- the host's clock.
CREATE TABLE onceward_outbox (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_outbox (name, value) VALUES ('schema_version', 0);

-- waiting -> delivered | dead; dead -> waiting, if an operator says so.
CREATE TABLE onceward_outbox_messages (
    -- The order in which messages were added; never given twice.
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    endpoint TEXT NOT NULL,
    topic TEXT NOT NULL,
    aggregate TEXT,
    payload BLOB NOT NULL,
    content_type TEXT NOT NULL,
    headers TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    -- When a relay may take it: after a wait, or when the lease of whoever has it runs out.
    due_at INTEGER NOT NULL,
    -- Counted when it is taken, so that a message that kills relays is given up one day.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Rises whenever it is taken: whoever brings back a lower one has lost it.
    fence INTEGER NOT NULL DEFAULT 0,
    reason TEXT,
    ended_at INTEGER
) STRICT;

CREATE INDEX onceward_outbox_waiting ON onceward_outbox_messages (endpoint, seq) WHERE state = 'waiting';

CREATE INDEX onceward_outbox_in_order ON onceward_outbox_messages (endpoint, aggregate, seq) WHERE state = 'waiting';

CREATE INDEX onceward_outbox_ended ON onceward_outbox_messages (state, ended_at) WHERE state <> 'waiting';

-- Endpoints that said that they are no more. Their messages wait until an operator enables them.
CREATE TABLE onceward_outbox_disabled (
    endpoint TEXT NOT NULL PRIMARY KEY,
    disabled_at INTEGER NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
