-- The records for people: text, words and times in the place of bytes and microseconds.

-- Bytes as text if they are UTF-8; NULL if not, so that one damaged row does not hide the others.
CREATE OR REPLACE FUNCTION onceward_text(bytes bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $onceward$
BEGIN
    RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$onceward$;

-- The digest is what errors, logs and `onceward records` show. The states are those of `onceward records list`.
CREATE OR REPLACE VIEW onceward_records_readable AS
SELECT
    encode(substr(id, 1, 6), 'hex') AS digest,
    scope,
    key,
    operation,
    CASE
        WHEN forget_at <= us THEN 'absent'
        WHEN state = 'in_doubt' THEN 'in_doubt'
        WHEN state = 'claimed' AND coalesce(lease_until, us) <= us THEN
            CASE WHEN guarantee IN ('atomic', 'repeatable') AND doubt = 0 THEN 'lapsed' ELSE 'in_doubt' END
        WHEN state = 'settled' AND replay_until <= us THEN 'expired'
        ELSE state
    END AS state,
    guarantee,
    attempt,
    fence,
    to_timestamp(first_at / 1000000.0) AS first_at,
    to_timestamp(settled_at / 1000000.0) AS settled_at,
    to_timestamp(lease_until / 1000000.0) AS lease_until,
    to_timestamp(replay_until / 1000000.0) AS replays_until,
    to_timestamp(forget_at / 1000000.0) AS forgotten_at,
    CASE WHEN codec = 'json/1' THEN onceward_text(result) END AS result,
    codec,
    octet_length(result) AS result_bytes,
    onceward_text(error) AS error
FROM onceward_records, (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock;
