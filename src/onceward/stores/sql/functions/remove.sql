-- Take the functions, the trigger and the view out again. Tables and records stay.
DROP TRIGGER IF EXISTS settled_before_commit ON onceward_records;
DROP VIEW IF EXISTS onceward_records_readable;
DROP FUNCTION IF EXISTS onceward_text, onceward_must_be_settled, onceward_settle_bytes, onceward_settle,
    onceward_put_settled, onceward_claim, onceward_fingerprint, onceward_fields, onceward_record_id, onceward_prefixed,
    onceward_stored_key, onceward_name_fault, onceward_functions_version;
