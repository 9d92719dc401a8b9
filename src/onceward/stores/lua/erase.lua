-- Delete a record, whatever its state, and every trace of it but its fence; says whether there was one (1 or 0).
--
-- KEYS  record, shard, names, forget, replay: one slot
-- ARGV  id

local row = redis.call('GET', KEYS[1])
local found = row and opened(row)
return drop(ARGV[1], found and found.family or '', found and found.fence)
