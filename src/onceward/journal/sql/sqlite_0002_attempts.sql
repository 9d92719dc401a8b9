-- Of an attempt: the model's own id of the tool call, and which process made it (as claims name their holders, in hex).
-- NULL in rows of schema 1, and in those of a worker of that version which is still running.
ALTER TABLE onceward_journal_calls ADD COLUMN call_id TEXT;

ALTER TABLE onceward_journal_calls ADD COLUMN process TEXT;
