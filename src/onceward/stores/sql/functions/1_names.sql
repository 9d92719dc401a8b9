-- What a record is found by and compared by, in PostgreSQL's own words. `_core/keys.py` and `_core/fingerprint.py` have
-- the same rules for Python, and golden vectors hold the two together. Functions that only compute are for everybody.

-- The version of these functions. `onceward store check` compares it with the package's.
CREATE OR REPLACE FUNCTION onceward_functions_version() RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $onceward$
    SELECT 2
$onceward$;

-- What is wrong with a scope or a key; NULL if nothing is: 1 to 255 visible ASCII characters. It never shows the name.
CREATE OR REPLACE FUNCTION onceward_name_fault(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $onceward$
    SELECT CASE
        WHEN name IS NULL THEN 'is missing; derive it from what the operation is about, for example charge:order-17'
        WHEN name = '' THEN 'is empty; derive it from what the operation is about, for example charge:order-17'
        WHEN length(name) > 255 THEN 'is longer than 255 characters; it is never cut to fit: use fewer ingredients'
        WHEN name COLLATE "C" ~ '[^[:ascii:]]' THEN 'has characters outside ASCII; use an id instead of a name'
        WHEN name COLLATE "C" ~ '[^ -~]' THEN 'has control characters; strip line ends and tabs before using it'
        WHEN name COLLATE "C" ~ ' ' THEN 'has blanks in it; use visible characters only, for example - or :'
    END
$onceward$;

-- The key as it is stored: in a scope such as live:acme it carries the environment. `fault` says why it cannot be one.
CREATE OR REPLACE FUNCTION onceward_stored_key(scope text, key text, OUT stored text, OUT code text, OUT fault text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $onceward$
DECLARE
    environment text := substring(scope FROM '^(live|test):');
    given text := substring(key FROM '^(live|test):');
    bare text := key;
BEGIN
    IF environment IS NOT NULL AND given <> environment THEN
        code := 'key_invalid';
        fault := 'the key belongs to the ' || given || ' environment and this is ' || environment
            || '; use a key of this environment, and none that begins with the other''s name';
        RETURN;
    END IF;
    IF environment IS NOT NULL AND given IS NOT NULL THEN
        bare := substr(key, length(given) + 2);
    END IF;
    fault := 'the key ' || onceward_name_fault(bare);
    IF fault IS NOT NULL THEN
        code := CASE WHEN coalesce(bare, '') = '' THEN 'key_missing' ELSE 'key_invalid' END;
        RETURN;
    END IF;
    stored := coalesce(environment || ':', '') || bare;
END
$onceward$;

-- A text as it goes into a hash: its length in front, so that no two lists of texts run together alike.
CREATE OR REPLACE FUNCTION onceward_prefixed(part text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $onceward$
    SELECT coalesce(int8send(octet_length(convert_to(part, 'UTF8'))) || convert_to(part, 'UTF8'), int8send(-1))
$onceward$;

-- The 32 bytes that a record is found by.
CREATE OR REPLACE FUNCTION onceward_record_id(scope text, key text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $onceward$
DECLARE
    named record;
    fault text := onceward_name_fault(scope);
BEGIN
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'the scope ' || fault;
    END IF;
    SELECT * INTO named FROM onceward_stored_key(scope, key);
    IF named.fault IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = named.fault;
    END IF;
    RETURN sha256(
        convert_to('onceward/1', 'UTF8') || onceward_prefixed('key') || onceward_prefixed(scope)
        || onceward_prefixed(named.stored)
    );
END
$onceward$;

-- The bytes of named text fields, in whatever order they come: onceward_fields('customer', '7', 'amount', '12.5000').
-- In Python, `onceward.keys.text_fields({"customer": "7", "amount": "12.5000"})`.
CREATE OR REPLACE FUNCTION onceward_fields(VARIADIC fields text[]) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $onceward$
DECLARE
    names text[] := ARRAY(SELECT one FROM unnest(fields) WITH ORDINALITY AS given(one, n) WHERE n % 2 = 1 ORDER BY n);
    texts text[] := ARRAY(SELECT one FROM unnest(fields) WITH ORDINALITY AS given(one, n) WHERE n % 2 = 0 ORDER BY n);
BEGIN
    IF cardinality(names) <> cardinality(texts) OR array_position(names, NULL) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'fields are pairs of a name and a text; one of them lacks its name or its text';
    END IF;
    IF cardinality(names) <> (SELECT count(DISTINCT one COLLATE "C") FROM unnest(names) AS given(one)) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = 'a field is named twice; name each once';
    END IF;
    RETURN coalesce((
        SELECT string_agg( onceward_prefixed(name) || onceward_prefixed(one), '' ORDER BY convert_to(name, 'UTF8'))
        FROM unnest(names, texts) AS given(name, one)
    ), '');
END
$onceward$;

-- What a request is compared by: 33 bytes, the same that Python makes of `request=` with these bytes, or with None.
CREATE OR REPLACE FUNCTION onceward_fingerprint(request bytea) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $onceward$
    SELECT decode('01', 'hex') || sha256(
        convert_to('onceward/fingerprint/1', 'UTF8') || decode('00', 'hex')
        || convert_to(coalesce('"' || translate(encode(request, 'base64'), E'+/=\n', '-_') || '"', 'null'), 'UTF8')
    )
$onceward$;
