-- Delete a record, whatever its state, and every trace of it but its fence; says whether there was one (1 or 0).
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot
-- ARGV  id

local found = redis.call('HMGET', KEYS[1], 'fence', 'family')
return drop(ARGV[1], found[2] or '', found[1])
