-- Make an expired record a tombstone: its answer goes, who it was stays. Says whether there was one (1 or 0).
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot
-- ARGV  id, version

local record, stale = KEYS[1], KEYS[5]
local found = redis.call('HMGET', record, 'state', 'replay_until', 'codec', 'error')

if found[1] == 'settled' and found[2] and tonumber(found[2]) > now then
    redis.call('ZADD', stale, found[2], ARGV[1])
    return 0
end
redis.call('ZREM', stale, ARGV[1])
if found[1] ~= 'settled' or not found[2] or not (found[3] or found[4]) then
    return 0
end
redis.call('HDEL', record, 'codec', 'result', 'error')
redis.call('HSET', record, 'version', ARGV[2])
return 1
