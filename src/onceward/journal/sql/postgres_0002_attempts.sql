-- Of an attempt: the model's own id of the tool call, and which process made it (as claims name their holders, in hex).
-- NULL in rows of schema 1, and in those of a worker of that version which is still running.
-- No default, so that no row is written anew; IF NOT EXISTS, because two may come here one after the other.
ALTER TABLE onceward_journal_calls ADD COLUMN IF NOT EXISTS call_id text;

ALTER TABLE onceward_journal_calls ADD COLUMN IF NOT EXISTS process text;
