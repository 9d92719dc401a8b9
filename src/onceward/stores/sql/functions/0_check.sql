-- These functions know one version of the tables, and refuse any other.
DO $onceward$
BEGIN
    IF (SELECT value FROM onceward_meta WHERE name = 'schema_version') IS DISTINCT FROM 3 THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the store does not have schema version 3; run onceward store migrate first';
    END IF;
END
$onceward$;
