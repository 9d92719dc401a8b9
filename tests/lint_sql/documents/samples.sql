INSERT INTO expenses (worker_id, user_id, amount, idempotency_key)
VALUES ('reconciler-v1', 1, 12.50, 'k-001')
ON CONFLICT (worker_id, idempotency_key) DO NOTHING;

INSERT INTO expenses (worker_id, user_id, amount, idempotency_key)
VALUES ('reconciler-v1', 1, 12.50, 'k-001');

INSERT INTO expenses (worker_id, user_id, amount, idempotency_key)
VALUES ('reconciler-v1', 1, 12.50, 'k-001')
ON CONFLICT (worker_id, idempotency_key) DO UPDATE SET amount = EXCLUDED.amount;
