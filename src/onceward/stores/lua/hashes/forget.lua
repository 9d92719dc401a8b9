-- Delete a record whose time has come, and every trace of it but its fence; says whether there was one (1 or 0).
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot
-- ARGV  id, family: as in the member of due that names it

local record, due = KEYS[1], KEYS[4]
local id, family = ARGV[1], ARGV[2]
local found = redis.call('HMGET', record, 'state', 'forget_at', 'fence')
local state, forget_at, fence = found[1], found[2], found[3]

-- A record that was claimed again, or given more time, since the index was read.
if state and (not is_end(state) or not forget_at) then
    redis.call('ZREM', due, id .. family)
    return 0
end
if state and tonumber(forget_at) > now then
    redis.call('ZADD', due, forget_at, id .. family)
    return 0
end
return drop(id, family, state and fence)
