-- What was tried, and how it ended. Nothing here decides anything. Instants are microseconds since 1970 on the host's
-- clock. Without a finished_at: under way, or killed.
CREATE TABLE onceward_journal_runs (
    scope TEXT NOT NULL,
    id TEXT NOT NULL,
    worker TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    input_ref TEXT,
    error TEXT,
    -- How often it was begun: a run that is resumed has the same id.
    begun INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (scope, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_journal_runs_started ON onceward_journal_runs (started_at);

CREATE TABLE onceward_journal_turns (
    scope TEXT NOT NULL,
    run TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'failed', 'cancelled')),
    error TEXT,
    begun INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (scope, run, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_journal_turns_started ON onceward_journal_turns (started_at);

-- One row for each attempt at a tool call. Ids begin with the time, so their order is that of the attempts.
CREATE TABLE onceward_journal_calls (
    id TEXT NOT NULL PRIMARY KEY,
    scope TEXT NOT NULL,
    run TEXT,
    turn INTEGER,
    worker TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT,
    fingerprint TEXT,
    arguments TEXT,
    outcome TEXT CHECK (outcome IN ('executed', 'replayed', 'refused', 'failed', 'unknown')),
    detail TEXT,
    started_at INTEGER NOT NULL,
    finished_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_journal_calls_of_scope ON onceward_journal_calls (scope, id);
CREATE INDEX onceward_journal_calls_of_run ON onceward_journal_calls (scope, run, id);
CREATE INDEX onceward_journal_calls_of_key ON onceward_journal_calls (scope, digest, id);
CREATE INDEX onceward_journal_calls_started ON onceward_journal_calls (started_at);

CREATE TABLE onceward_journal (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_journal (name, value) VALUES ('schema_version', 1);
