-- Give a settled record of a family that still replays more time; says whether it was one (1 or 0).
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot
-- ARGV  id, family, replay, forget

local record, due, stale, families = KEYS[1], KEYS[4], KEYS[5], KEYS[6]
local id, family = ARGV[1], ARGV[2]
local found = redis.call('HMGET', record, 'state', 'family', 'replay_until', 'forget_at', 'codec', 'error')

if found[2] ~= family then
    redis.call('ZREM', families, family .. id)
    return 0
end
if found[1] ~= 'settled' or not found[3] or tonumber(found[3]) <= now then
    return 0
end
local replay_until = math.max(tonumber(found[3]), now + ARGV[3])
redis.call('HSET', record, 'replay_until', text(replay_until))
if found[5] or found[6] then
    redis.call('ZADD', stale, text(replay_until), id)
end
if found[4] then
    local forget_at = math.max(tonumber(found[4]), now + ARGV[4])
    redis.call('HSET', record, 'forget_at', text(forget_at))
    redis.call('ZADD', due, text(forget_at), id .. family)
    expire(record, forget_at)
end
return 1
