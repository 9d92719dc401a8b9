-- What was tried, and how it ended. Nothing here decides anything. Instants are microseconds since 1970 on the server's
-- clock. Without a finished_at: under way, or killed.
CREATE TABLE onceward_journal_runs (
    scope text NOT NULL,
    id text NOT NULL,
    worker text NOT NULL,
    status text NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    input_ref text,
    error text,
    -- How often it was begun: a run that is resumed has the same id.
    begun bigint NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint,
    PRIMARY KEY (scope, id)
);

CREATE INDEX onceward_journal_runs_started ON onceward_journal_runs (started_at);

CREATE TABLE onceward_journal_turns (
    scope text NOT NULL,
    run text NOT NULL,
    seq bigint NOT NULL,
    status text NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    error text,
    begun bigint NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint,
    PRIMARY KEY (scope, run, seq)
);

CREATE INDEX onceward_journal_turns_started ON onceward_journal_turns (started_at);

-- One row for each attempt at a tool call. Ids begin with the time, so their order is that of the attempts.
CREATE TABLE onceward_journal_calls (
    id text NOT NULL PRIMARY KEY,
    scope text NOT NULL,
    run text,
    turn bigint,
    worker text NOT NULL,
    tool text NOT NULL,
    digest text,
    fingerprint text,
    arguments text,
    outcome text CHECK (outcome IN ('executed', 'replayed', 'refused', 'failed', 'unknown')),
    detail text,
    started_at bigint NOT NULL,
    finished_at bigint
);

CREATE INDEX onceward_journal_calls_of_scope ON onceward_journal_calls (scope, id);
CREATE INDEX onceward_journal_calls_of_run ON onceward_journal_calls (scope, run, id);
CREATE INDEX onceward_journal_calls_of_key ON onceward_journal_calls (scope, digest, id);
CREATE INDEX onceward_journal_calls_started ON onceward_journal_calls (started_at);

CREATE TABLE onceward_journal (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_journal (name, value) VALUES ('schema_version', 1);
