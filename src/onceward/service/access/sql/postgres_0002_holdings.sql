-- Every attempt has a reservation of its own. `operation` names the record that can say whether it ran, should its
-- holder die; NULL: nobody can. `opened_at` is NULL in rows of schema 1, and in those of a process of that version which
-- still runs. `reference` is the row's own id from now on.
ALTER TABLE onceward_reservations ADD COLUMN IF NOT EXISTS operation text;

ALTER TABLE onceward_reservations ADD COLUMN IF NOT EXISTS opened_at bigint;

CREATE INDEX IF NOT EXISTS onceward_reservations_of_operation ON onceward_reservations (tenant, operation)
    WHERE operation IS NOT NULL;

-- How many databases a tenant may have; NULL: as many as the service lets everybody have.
ALTER TABLE onceward_tenants ADD COLUMN IF NOT EXISTS quota_databases bigint;

-- When the count began that used_records and used_bytes are of. `counted_at` is when one was last begun, by whomever.
INSERT INTO onceward_access (name, value) VALUES ('counted_since', 0) ON CONFLICT (name) DO NOTHING;
