-- Put a packed row where nothing stands and which has not ended, or say what stands there: {1, now, fence} or
-- {0, now, row}. It is `put.lua` for this case, and nothing but this case, because most puts are one.
--
-- KEYS  record, shard, names: one slot
-- ARGV  number of shards and a space, fence as in `fences.lua`, head, tail

local row = redis.call('GET', KEYS[1])
if row then
    return {0, now, row}
end

-- A shard that is not there, or is one of another number, was not made by whoever made this caller's store.
local count, stands, fence, head = ARGV[1], redis.call('GET', KEYS[2]), ARGV[2], ARGV[3]
if not stands or string.sub(stands, 1, #count) ~= count then
    return redis.error_reply('ONCEWARD this shard is not ready')
end

local lowest, kept = string.sub(stands, #count + 1), nil
fence, kept = fence_of(fence, lowest)

-- The first write of the script: a server that is full refuses it, and nothing has changed. The fence is noted with the
-- row, which may vanish: no later claim in this shard gets one that was given out.
local packed = head .. struct.pack('>i8', now) .. kept .. ARGV[4]
redis.call('MSET', KEYS[1], packed, KEYS[2], less(lowest, fence) and count .. fence or stands)
local id, family = string.sub(KEYS[1], -32), string.sub(head, 4 + string.byte(head, 2))
if family == '' then
    redis.call('ZADD', KEYS[3], 0, 'i' .. id, 0, 'o' .. id)
else
    redis.call('ZADD', KEYS[3], 0, 'i' .. id, 0, 'o' .. id, 0, 'f' .. family .. id)
end
return {1, now, fence}
