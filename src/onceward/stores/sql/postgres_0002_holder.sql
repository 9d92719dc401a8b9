-- Which process holds a claim, or left it in doubt: NULL for whoever ended well, and in rows of schema 1.
-- No default, so that no row is written anew: it takes a moment, however large the table is. IF NOT EXISTS, because two
-- who find the schema before this one at the same time both come here, one after the other.
ALTER TABLE onceward_records ADD COLUMN IF NOT EXISTS holder bytea;

UPDATE onceward_meta SET value = 2 WHERE name = 'schema_version';
