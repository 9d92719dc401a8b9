ALTER TABLE expenses
ADD COLUMN worker_id text,
ADD COLUMN idempotency_key text;

UPDATE expenses
SET worker_id = 'historical-backfill',
idempotency_key = encode(
digest('historical-backfill:' || id::text, 'sha256'),
'hex'
)
WHERE idempotency_key IS NULL OR worker_id IS NULL;

ALTER TABLE expenses
ALTER COLUMN worker_id SET NOT NULL,
ALTER COLUMN idempotency_key SET NOT NULL;

ALTER TABLE expenses
ADD CONSTRAINT expenses_worker_idem_key
UNIQUE (worker_id, idempotency_key);

