-- Delete a record, whatever its state, and every trace of it but its fence; says whether there was one (1 or 0).
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot
-- ARGV  id

local record, ids, open, due, stale, families, floor = unpack(KEYS)
local id = ARGV[1]
local found = redis.call('HMGET', record, 'fence', 'family')
local fence, family = found[1], found[2] or ''

if fence then
    local lowest = redis.call('GET', floor)
    if not lowest or less(lowest, fence) then
        redis.call('SET', floor, fence)
    end
    redis.call('DEL', record)
end
redis.call('ZREM', ids, id)
redis.call('ZREM', open, id)
redis.call('ZREM', stale, id)
redis.call('ZREM', due, id .. family)
if family ~= '' then
    redis.call('ZREM', families, family .. id)
end
return fence and 1 or 0
