-- What a record leaves behind, and its end.

-- Raise the fence that every later claim in this shard gets more than.
local function raise(shard, fence)
    local stands = redis.call('GET', shard)
    local count, lowest = string.match(stands or '', '^(%d+) (%d*)$')
    if count and less(lowest, fence) then
        redis.call('SET', shard, count .. ' ' .. fence)
    end
end

-- Delete a record and every trace of it but its fence, which no later claim may get again; says whether there was one
-- (1 or 0). `fence` is nil if only traces are left.
local function drop(id, family, fence)
    local record, shard, names, forget, replay = unpack(KEYS)
    if fence then
        raise(shard, fence)
        redis.call('DEL', record)
    end
    redis.call('ZREM', names, 'i' .. id, 'o' .. id, 'f' .. family .. id)
    redis.call('ZREM', replay, id)
    redis.call('ZREM', forget, id .. family)
    return fence and 1 or 0
end
