-- What was signed, of sources whose event id is not: whoever has seen one such message can send it under any id.
-- The primary key is the arbiter: one message is of one event, whatever ids it comes with. One row for each message that
-- the sender signed, so a redelivery that is signed anew has one more; they go with their event.
CREATE TABLE onceward_inbox_messages (
    scope text NOT NULL,
    source text NOT NULL,
    -- SHA-256 of the signed bytes.
    digest bytea NOT NULL,
    id text NOT NULL,
    PRIMARY KEY (scope, source, digest),
    -- Deferred: the message is written first, because it decides.
    FOREIGN KEY (scope, source, id) REFERENCES onceward_inbox_events (scope, source, id)
        ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);

CREATE INDEX onceward_inbox_messages_event ON onceward_inbox_messages (scope, source, id);

-- Deliveries of the same signed message under another id.
ALTER TABLE onceward_inbox_events ADD COLUMN renamed bigint NOT NULL DEFAULT 0;

-- 1: equal messages under different ids are different events, because somebody said so.
ALTER TABLE onceward_inbox_sources ADD COLUMN trust_unsigned_id bigint NOT NULL DEFAULT 0;

-- Events that were here before: where the body alone is signed, this is what was signed.
INSERT INTO onceward_inbox_messages (scope, source, digest, id)
    SELECT scope, source, digest, min(id) FROM onceward_inbox_events GROUP BY scope, source, digest;
