-- When purge looks at a record again; NULL: a day after its first time. See docs/decisions/116.
-- An ordinary settle leaves this column alone, and no index or predicate of an index names any other column that a
-- settle changes: so a settle is a HOT update, which writes no index. No default, so that no row is written anew.
-- 9223372036854775807 says that the record was seen unsettled: in doubt, or in flight for long. One index serves all
-- three: each partial index has a condition that every insert asks.
SET LOCAL lock_timeout = '2s';
ALTER TABLE onceward_records ADD COLUMN IF NOT EXISTS due_at bigint;

DO $onceward$
DECLARE
    leaf regclass;
    leaves regclass[] := ARRAY(
        SELECT relid FROM pg_partition_tree('onceward_records') WHERE isleaf
        UNION SELECT oid FROM pg_class WHERE oid = 'onceward_records'::regclass AND relkind = 'r');
BEGIN
    -- A page keeps room for the settled form of its claims, and dead rows are taken away early. For each partition,
    -- where there are any: the table over them has no pages.
    FOREACH leaf IN ARRAY leaves LOOP
        EXECUTE format(
            'ALTER TABLE %s SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, '
            'autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_scale_factor = 0.1, '
            'autovacuum_analyze_scale_factor = 0.05)', leaf);
    END LOOP;
    -- A small table gets its index at once. In a large one that would stop every writer, so `onceward store migrate`
    -- makes it beside the writers.
    IF (SELECT sum(pg_relation_size(one)) FROM unnest(leaves) AS one) < 67108864 THEN
        CREATE INDEX IF NOT EXISTS onceward_due_at ON onceward_records (due_at, first_at);
        -- Those of schema 2, and what development versions had in this one's place.
        DROP INDEX IF EXISTS onceward_forget, onceward_shrink, onceward_unsettled, onceward_young, onceward_due, onceward_open;
    END IF;
END
$onceward$;

UPDATE onceward_meta SET value = 3 WHERE name = 'schema_version';
