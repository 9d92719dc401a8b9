-- Delete a record whose time has come, and every trace of it but its fence; says whether there was one (1 or 0).
--
-- KEYS  record, shard, names, forget, replay: one slot
-- ARGV  id, family: as in the member of `forget` that names it

local id, family = ARGV[1], ARGV[2]
local row = redis.call('GET', KEYS[1])
if not row then
    return drop(id, family, nil)
end

-- A record that was claimed again, or given more time, since the index was read.
local found = opened(row)
if not ENDED[found.state] or found.forget < 0 then
    redis.call('ZREM', KEYS[4], id .. family)
    return 0
end
if found.at + found.forget > now then
    redis.call('ZADD', KEYS[4], text(found.at + found.forget), id .. family)
    return 0
end
return drop(id, family, found.fence)
