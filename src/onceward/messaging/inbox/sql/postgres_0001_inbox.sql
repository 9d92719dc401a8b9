-- Events that were received. Instants are microseconds since 1970 on the server's clock.
-- The primary key is the arbiter: an event of a source is here once, whoever delivers it how often.
CREATE TABLE onceward_inbox_events (
    scope text NOT NULL,
    source text NOT NULL,
    id text NOT NULL,
    -- SHA-256 of the first body. The body itself is kept until the event is done.
    digest bytea NOT NULL,
    body bytea,
    headers text,
    signed_at bigint,
    number bigint,
    received_at bigint NOT NULL,
    deliveries bigint NOT NULL DEFAULT 1,
    -- Deliveries with the same id and another body.
    altered bigint NOT NULL DEFAULT 0,
    -- waiting -> done | dead; dead -> waiting, if somebody requeues it.
    state text NOT NULL,
    -- When it is to be tried: later than now also while somebody is at it, until the lease is over.
    due_at bigint NOT NULL,
    -- Rises with every claim; whoever was overtaken changes nothing.
    fence bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    -- 1: there is, or was, a dead letter about it.
    buried bigint NOT NULL DEFAULT 0,
    failure text,
    done_at bigint,
    forget_at bigint,
    PRIMARY KEY (scope, source, id)
);

CREATE INDEX onceward_inbox_events_due ON onceward_inbox_events (due_at) WHERE state = 'waiting';
CREATE INDEX onceward_inbox_events_forget ON onceward_inbox_events (forget_at) WHERE forget_at IS NOT NULL;

-- Of sources that number their events: how far they have come, and how often a number came again with another event.
CREATE TABLE onceward_inbox_marks (
    scope text NOT NULL,
    source text NOT NULL,
    highest bigint NOT NULL,
    rewinds bigint NOT NULL DEFAULT 0,
    rewound_at bigint,
    PRIMARY KEY (scope, source)
);

-- The numbers that are missing, first to last.
CREATE TABLE onceward_inbox_gaps (
    scope text NOT NULL,
    source text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (scope, source, first)
);

-- What `onceward hooks add` was told. `secrets` says where the secrets are, and never what they are.
CREATE TABLE onceward_inbox_sources (
    name text NOT NULL PRIMARY KEY,
    scope text NOT NULL,
    scheme text NOT NULL,
    secrets text NOT NULL,
    handler text NOT NULL,
    number_at text,
    attempts bigint NOT NULL,
    keep bigint,
    added_at bigint NOT NULL
);

CREATE TABLE onceward_inbox (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_inbox (name, value) VALUES ('schema_version', 1);
