-- A stored procedure that charges once, whoever sends it how often. The record is Onceward's own, so that Python and
-- every other language replay it. Before this: onceward store install-functions. Run it as the owner of the tables.
--
-- The client makes the key, one for each charge that it wants (a UUID will do), and sends it again with every retry.
-- A retry within 24 hours is answered from the record; for 30 days after that it is refused as expired, and not run.

CREATE TABLE IF NOT EXISTS charge (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_charge PRIMARY KEY,
    customer_id integer NOT NULL,
    amount numeric(19, 4) NOT NULL CONSTRAINT ck_charge_amount CHECK (amount > 0),
    receipt text CONSTRAINT uq_charge_receipt UNIQUE,
    created_at timestamptz(3) NOT NULL DEFAULT clock_timestamp()
);

-- Fast path, fresh path and the loser of a race: one shape. It takes part in the caller's transaction; without one, the
-- call is a transaction by itself. A violation of any other constraint is not a duplicate: it surfaces, and undoes the
-- claim with everything else.
CREATE OR REPLACE FUNCTION charge_create(
    idempotency_key text,
    customer_id integer,
    amount numeric,
    receipt text DEFAULT NULL,
    OUT response_status integer,
    OUT response_body json
)
-- With its owner's rights, so that callers need none on the tables; and so with a search path of its own.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    its_customer constant integer := customer_id;
    its_amount constant numeric := round(amount, 4);
    its_receipt constant text := receipt;
    claimed record;
    reply json;
BEGIN
    -- A parameter's numeric(19, 4) is not enforced, and a column's rounds: neither may happen to money.
    IF amount IS NULL OR its_amount <> amount OR abs(its_amount) >= 1e15 OR its_amount = 'NaN' THEN
        RAISE EXCEPTION 'not an amount of at most four places: %', amount USING ERRCODE = 'invalid_parameter_value';
    END IF;

    SELECT * INTO claimed FROM onceward_claim(
        scope => 'test:charges',  -- Whose key it is: the tenant, from who is calling and never from what was sent.
        key => idempotency_key,
        fingerprint => onceward_fingerprint(onceward_fields(
            'customer_id', its_customer::text, 'amount', its_amount::text, 'receipt', its_receipt
        )),
        operation => 'charge_create'
    );

    IF claimed.verdict = 'fresh' THEN
        INSERT INTO charge (customer_id, amount, receipt) VALUES (its_customer, its_amount, its_receipt);
        reply := onceward_settle(
            claimed.claim, json_build_object('status', 201, 'body', json_build_object('status', 'created'))
        );
    ELSIF claimed.verdict = 'replay' THEN
        reply := claimed.value;
    ELSE
        reply := json_build_object(
            'status', CASE claimed.verdict
                WHEN 'key_missing' THEN 400
                WHEN 'key_invalid' THEN 400
                WHEN 'key_reused' THEN 422
                WHEN 'expired' THEN 410
                ELSE 409
            END,
            'body', json_build_object('error', claimed.verdict)
        );
    END IF;
    response_status := reply ->> 'status';
    response_body := reply -> 'body';
END
$$;

-- EXECUTE is granted, the tables are not:
--   GRANT EXECUTE ON FUNCTION charge_create TO the_role_of_your_application;
REVOKE ALL ON FUNCTION charge_create FROM PUBLIC;
