-- Settle what was claimed, in the same transaction, and refuse a commit without that.

-- Put the settled record in the place of the claim. For the two functions below; nobody else may call it.
CREATE OR REPLACE FUNCTION onceward_put_settled(
    claim bytea, its_codec text, its_result bytea, retain interval, tombstone interval
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $onceward$
DECLARE
    retain_us numeric := extract(epoch FROM retain) * 1000000;
    tombstone_us numeric := extract(epoch FROM tombstone) * 1000000;
    most constant bigint := 10::bigint * 365 * 86400 * 1000000;
BEGIN
    IF claim IS NULL OR octet_length(claim) <> 56
        OR substr(claim, 49) IS DISTINCT FROM xid8send(pg_current_xact_id_if_assigned())
    THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'this is not a claim of this transaction; nothing was settled',
            HINT = 'Settle in the transaction that claimed, with the claim that onceward_claim answered as fresh.';
    END IF;
    IF retain_us IS NULL OR tombstone_us IS NULL OR retain_us < 1 OR tombstone_us < 0
        OR retain_us > most OR tombstone_us > most
    THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'retain is more than nothing, tombstone is not negative, and neither is beyond ten years';
    END IF;
    IF octet_length(its_result) > 1048576 THEN
        RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded',
            MESSAGE = 'the result is too large to store: ' || octet_length(its_result) || ' bytes, and the limit is 1048576',
            HINT = 'Answer less, or an id under which the rest can be found.';
    END IF;
    UPDATE onceward_records AS kept SET
        state = 'settled', doubt = 0, version = uuid_send(gen_random_uuid()), settled_at = clock.us,
        lease_until = NULL, replay_until = clock.us + retain_us::bigint,
        forget_at = clock.us + retain_us::bigint + tombstone_us::bigint,
        codec = its_codec, result = its_result, error = NULL, holder = NULL,
        -- Purge looks a day after the first time by itself.
        due_at = CASE WHEN kept.due_at IS NOT NULL OR clock.us + retain_us::bigint < kept.first_at + 86400000000
            THEN clock.us + retain_us::bigint END
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS us) AS clock
    WHERE kept.id = substr(claim, 1, 32) AND kept.token = substr(claim, 33, 16) AND kept.state = 'claimed'
        AND kept.lease_until IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'this claim does not stand any more; nothing was settled',
            HINT = 'It was settled already, or what had claimed it was rolled back.';
    END IF;
END
$onceward$;

-- Settle with a JSON value, and give it back as it is stored: what is answered now is what a retry is answered.
CREATE OR REPLACE FUNCTION onceward_settle(
    claim bytea, value json, retain interval DEFAULT '24 hours', tombstone interval DEFAULT '30 days'
) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $onceward$
DECLARE
    kept text := coalesce(value::text, 'null');
    read jsonb;
BEGIN
    IF octet_length(kept) > 4194304 THEN
        RAISE EXCEPTION USING ERRCODE = 'program_limit_exceeded',
            MESSAGE = 'the result is too large to store: ' || octet_length(kept) || ' bytes, and the limit is 1048576',
            HINT = 'Answer less, or an id under which the rest can be found.';
    END IF;
    -- Without the space between its parts, as Python writes it. Strings and numbers stay as they were spelled.
    IF kept ~ E'[ \\t\\r\\n]' THEN
        kept := regexp_replace(kept, E'("(?:[^"\\\\]|\\\\.)*")|[ \\t\\r\\n]+', E'\\1', 'g');
    END IF;
    -- jsonb refuses half a character; Python reads numbers as doubles, and 128 levels.
    read := kept;
    IF jsonb_path_exists(read, 'strict $.**{128} ? (@.type() == "object" || @.type() == "array")')
        OR jsonb_path_exists(read, 'strict $.** ? (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308)')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'the result nests deeper than 128 levels, or has a number that no double holds',
            HINT = 'Flatten it, and give large numbers as texts.';
    END IF;
    PERFORM onceward_put_settled(claim, 'json/1', convert_to(kept, 'UTF8'), retain, tombstone);
    RETURN kept::json;
END
$onceward$;

-- Settle with bytes, and give them back.
CREATE OR REPLACE FUNCTION onceward_settle_bytes(
    claim bytea, result bytea, retain interval DEFAULT '24 hours', tombstone interval DEFAULT '30 days'
) RETURNS bytea
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $onceward$
BEGIN
    IF result IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'the result is NULL; settle with empty bytes, or with onceward_settle(claim, NULL)';
    END IF;
    PERFORM onceward_put_settled(claim, 'bytes/1', result, retain, tombstone);
    RETURN result;
END
$onceward$;

-- A claim has no lease, because nobody else can see it; so it must not outlive its transaction.
CREATE OR REPLACE FUNCTION onceward_must_be_settled() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $onceward$
BEGIN
    IF NOT EXISTS (
        SELECT FROM onceward_records AS kept WHERE kept.id = NEW.id AND kept.token = NEW.token AND kept.state = 'settled'
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'a key was claimed in this transaction and not settled, so nothing is committed',
            HINT = 'Call onceward_settle before you commit, or roll back to before onceward_claim.';
    END IF;
    RETURN NULL;
END
$onceward$;

-- Made once: making it anew would stop every writer for a moment.
DO $onceward$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgname = 'settled_before_commit' AND tgrelid = to_regclass('onceward_records')
    ) THEN
        CREATE CONSTRAINT TRIGGER settled_before_commit AFTER INSERT OR UPDATE ON onceward_records
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NEW.state = 'claimed' AND NEW.lease_until IS NULL)
            EXECUTE FUNCTION onceward_must_be_settled();
    END IF;
END
$onceward$;
