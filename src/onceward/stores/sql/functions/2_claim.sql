-- Claim a key in the caller's own transaction. The insert comes first and the primary key judges: whoever is second
-- waits for the first one's commit, and is then answered from its record. Under READ COMMITTED that never aborts the
-- caller's transaction; above it PostgreSQL says 40001, and the transaction is to be run again.
--
-- The decisions are those of `decide` in `_core/record.py`, for an atomic effect that cannot probe:
--
--     fresh           it is yours: do it, and give `claim` to onceward_settle before you commit
--     replay          it was done: `value` (JSON) or `result` (bytes) is what was answered then
--     failed          it was done, and its failure was remembered: `error` has its type, message and code
--     key_reused      the key was used for another request
--     expired         it was done so long ago that its result is gone
--     not_replayable  it was done, and its result was never stored
--     in_doubt        nobody knows whether it was done: a person has to decide
--     in_flight       somebody holds it for a while: try again after `retry_after` seconds
--     contended       others kept changing it: try again
--     key_missing, key_invalid   it cannot be a key: `detail` says why
CREATE OR REPLACE FUNCTION onceward_claim(
    scope text,
    key text,
    fingerprint bytea,
    operation text DEFAULT '',
    OUT verdict text,
    OUT claim bytea,
    OUT value json,
    OUT codec text,
    OUT result bytea,
    OUT error json,
    OUT first_at timestamptz,
    OUT attempt bigint,
    OUT fence bigint,
    OUT retry_after double precision,
    OUT detail text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $onceward$
#variable_conflict use_column
DECLARE
    its_scope text := scope;
    its_fingerprint bytea := fingerprint;
    its_operation text := operation;
    its_key text;
    its_id bytea;
    its_token bytea := uuid_send(gen_random_uuid());
    its_version bytea := uuid_send(gen_random_uuid());
    fault text := onceward_name_fault(its_scope);
    known bigint;
    now_us bigint;
    left_us bigint;
    forgotten boolean;
    landed record;
    standing onceward_records;
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'the scope ' || fault,
            HINT = 'It says whose key this is, and comes from who is calling: live:acme.';
    END IF;
    IF its_fingerprint IS NULL OR octet_length(its_fingerprint) <> 33 OR get_byte(its_fingerprint, 0) NOT IN (1, 2, 3)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'this is not a fingerprint',
            HINT = 'Make one with onceward_fingerprint(bytes), of the bytes or of onceward_fields(name, text, ...).';
    END IF;
    IF its_operation IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'the operation is NULL; name it, or leave it out';
    END IF;
    SELECT one.stored, one.code, one.fault INTO its_key, verdict, detail
    FROM onceward_stored_key(its_scope, key) AS one;
    IF verdict IS NOT NULL THEN
        RETURN;
    END IF;
    known := (SELECT meta.value FROM onceward_meta AS meta WHERE name = 'schema_version');
    IF known IS DISTINCT FROM 3 THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the store has schema version ' || coalesce(known::text, 'none') || ', these functions know 3',
            HINT = 'Run onceward store install-functions with the version of Onceward that the store has.';
    END IF;
    its_id := onceward_record_id(its_scope, key);

    FOR spin IN 1..20 LOOP
        INSERT INTO onceward_records AS kept (
            id, kind, scope, key, operation, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
            first_at
        )
        SELECT its_id, 'key', its_scope, its_key, its_operation, 'claimed', 'atomic', 0, its_fingerprint, its_version,
            its_token,
            greatest(
                1, clock.us, (SELECT meta.value FROM onceward_meta AS meta WHERE name = 'fence_floor') + 1
            ),
            1, clock.us
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
        ON CONFLICT (id) DO NOTHING
        RETURNING kept.fence, kept.attempt, kept.first_at INTO landed;
        EXIT WHEN FOUND;

        -- A statement of its own, so that it sees what was committed while the insert waited.
        SELECT kept.* INTO standing FROM onceward_records AS kept WHERE kept.id = its_id;
        CONTINUE WHEN NOT FOUND;
        now_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
        IF standing.state NOT IN ('claimed', 'settled', 'released', 'in_doubt')
            OR octet_length(standing.fingerprint) = 0 OR get_byte(standing.fingerprint, 0) NOT IN (1, 2, 3)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = 'a record was written by a newer version of Onceward',
                HINT = 'Upgrade Onceward, and run onceward store install-functions.';
        END IF;

        forgotten := coalesce(standing.forget_at <= now_us, false);
        left_us := standing.lease_until - now_us;
        verdict := CASE
            WHEN forgotten THEN NULL
            WHEN standing.fingerprint <> its_fingerprint THEN 'key_reused'
            WHEN standing.state = 'settled' AND standing.replay_until <= now_us THEN 'expired'
            WHEN standing.state = 'settled' AND standing.error IS NOT NULL THEN 'failed'
            WHEN standing.state = 'settled' AND standing.codec IS NULL THEN 'not_replayable'
            WHEN standing.state = 'settled' THEN 'replay'
            WHEN standing.state = 'released' THEN NULL
            -- A claim without a lease is never committed: it was made in this very transaction.
            WHEN standing.state = 'claimed' AND (left_us IS NULL OR left_us > 0) THEN 'in_flight'
            WHEN standing.state = 'claimed' AND standing.guarantee IN ('atomic', 'repeatable') AND standing.doubt = 0 THEN NULL
            ELSE 'in_doubt'
        END;
        EXIT WHEN verdict IS NOT NULL;

        UPDATE onceward_records AS kept SET
            kind = 'key', scope = its_scope, key = its_key, operation = its_operation, family = NULL,
            state = 'claimed', guarantee = 'atomic', doubt = 0, fingerprint = its_fingerprint, version = its_version,
            token = its_token,
            fence = greatest(
                standing.fence + 1, clock.us, (SELECT meta.value FROM onceward_meta AS meta WHERE name = 'fence_floor') + 1
            ),
            attempt = CASE WHEN forgotten THEN 1 ELSE standing.attempt + 1 END,
            first_at = clock.us, settled_at = NULL, lease_until = NULL, replay_until = NULL, forget_at = NULL,
            codec = NULL, result = NULL, error = NULL, holder = NULL,
            -- Purge has looked at it before: from now on it is listed as unsettled.
            due_at = CASE WHEN kept.due_at IS NOT NULL THEN 9223372036854775807 END
        FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
        WHERE kept.id = its_id AND kept.version = standing.version
        RETURNING kept.fence, kept.attempt, kept.first_at INTO landed;
        EXIT WHEN FOUND;
    END LOOP;

    IF verdict IS NULL AND landed.fence IS NULL THEN
        verdict := 'contended';
        retry_after := 1;
        detail := 'others kept changing this record; try again';
    ELSIF verdict IS NULL THEN
        verdict := 'fresh';
        claim := its_id || its_token || xid8send(pg_current_xact_id());
        attempt := landed.attempt;
        fence := landed.fence;
        first_at := to_timestamp(landed.first_at / 1000000.0);
    ELSE
        attempt := standing.attempt;
        fence := standing.fence;
        first_at := to_timestamp(standing.first_at / 1000000.0);
        IF verdict = 'replay' THEN
            codec := standing.codec;
            result := standing.result;
            value := CASE WHEN standing.codec = 'json/1' THEN convert_from(standing.result, 'UTF8')::json END;
        ELSIF verdict = 'failed' THEN
            error := convert_from(standing.error, 'UTF8')::json;
        ELSIF verdict = 'in_flight' THEN
            -- As long as nothing was heard of its holder, and at most until its lease of a minute ends.
            retry_after := CASE WHEN left_us > 0 THEN least(left_us / 1e6, greatest(1, 60 - left_us / 1e6)) END;
            detail := CASE WHEN left_us IS NULL THEN 'it was claimed earlier in this very transaction' END;
        END IF;
    END IF;
END
$onceward$;
