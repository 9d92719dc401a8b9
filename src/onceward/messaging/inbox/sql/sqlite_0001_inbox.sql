-- Events that were received. Instants are microseconds since 1970 on the host's clock.
-- The primary key is the arbiter: an event of a source is here once, whoever delivers it how often.
CREATE TABLE onceward_inbox_events (
    scope TEXT NOT NULL,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    -- SHA-256 of the first body. The body itself is kept until the event is done.
    digest BLOB NOT NULL,
    body BLOB,
    headers TEXT,
    signed_at INTEGER,
    number INTEGER,
    received_at INTEGER NOT NULL,
    deliveries INTEGER NOT NULL DEFAULT 1,
    -- Deliveries with the same id and another body.
    altered INTEGER NOT NULL DEFAULT 0,
    -- waiting -> done | dead; dead -> waiting, if somebody requeues it.
    state TEXT NOT NULL,
    -- When it is to be tried: later than now also while somebody is at it, until the lease is over.
    due_at INTEGER NOT NULL,
    -- Rises with every claim; whoever was overtaken changes nothing.
    fence INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    -- 1: there is, or was, a dead letter about it.
    buried INTEGER NOT NULL DEFAULT 0,
    failure TEXT,
    done_at INTEGER,
    forget_at INTEGER,
    PRIMARY KEY (scope, source, id)
) STRICT;

CREATE INDEX onceward_inbox_events_due ON onceward_inbox_events (due_at) WHERE state = 'waiting';
CREATE INDEX onceward_inbox_events_forget ON onceward_inbox_events (forget_at) WHERE forget_at IS NOT NULL;

-- Of sources that number their events: how far they have come, and how often a number came again with another event.
CREATE TABLE onceward_inbox_marks (
    scope TEXT NOT NULL,
    source TEXT NOT NULL,
    highest INTEGER NOT NULL,
    rewinds INTEGER NOT NULL DEFAULT 0,
    rewound_at INTEGER,
    PRIMARY KEY (scope, source)
) STRICT, WITHOUT ROWID;

-- The numbers that are missing, first to last.
CREATE TABLE onceward_inbox_gaps (
    scope TEXT NOT NULL,
    source TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (scope, source, first)
) STRICT, WITHOUT ROWID;

-- What `onceward hooks add` was told. `secrets` says where the secrets are, and never what they are.
CREATE TABLE onceward_inbox_sources (
    name TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    scheme TEXT NOT NULL,
    secrets TEXT NOT NULL,
    handler TEXT NOT NULL,
    number_at TEXT,
    attempts INTEGER NOT NULL,
    keep INTEGER,
    added_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE onceward_inbox (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_inbox (name, value) VALUES ('schema_version', 1);
