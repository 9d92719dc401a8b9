-- Make a shard ready for packed rows: {shards as noted here, 1 if rows of version 1 are here}. Doing it again is fine.
--
-- The key in which version 1 keeps its fence becomes a hash. Every claim of a process of version 1 reads it as a text,
-- so from here on none of them lands, and none is half written: the error comes before the first write.
--
-- KEYS  shard, floor and ids of version 1: one slot
-- ARGV  number of shards ('': only shut out version 1, this is no shard of the store)

local shard, floor, ids = KEYS[1], KEYS[2], KEYS[3]
local kind = redis.call('TYPE', floor).ok
local lowest = kind == 'string' and redis.call('GET', floor) or ''
if ARGV[1] ~= '' then
    local found = redis.call('GET', shard)
    if not found then
        redis.call('SET', shard, ARGV[1] .. ' ' .. lowest)
    elseif lowest ~= '' then
        raise(shard, lowest)
    end
end
if kind ~= 'hash' then
    redis.call('DEL', floor)
    redis.call('HSET', floor, 'records', 'are of schema version 2: upgrade onceward')
end
local stands = string.match(redis.call('GET', shard) or '', '^%d+')
return {stands or '', redis.call('TYPE', ids).ok == 'zset' and 1 or 0}
