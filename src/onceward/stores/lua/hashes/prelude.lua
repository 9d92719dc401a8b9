-- What every script begins with. Times are microseconds on this server's clock; a caller's clock plays no role.
-- Instants and fences are kept as decimal text: Lua counts in doubles, and a fence may lie beyond 2^53.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- A forgotten record stays this much longer (milliseconds) before the server drops it by itself, so that a purge
-- normally meets it and tidies the indexes in the same go. For the rules it is absent from its time on.
local GRACE = 60000

-- Instants beyond this cannot be told apart by a double, nor be an expiry: two hundred years from now.
local NEVER = 9007199254740992

local FIELDS = {
    'kind', 'scope', 'key', 'operation', 'family', 'state', 'guarantee', 'doubt', 'fingerprint', 'version', 'token',
    'fence', 'attempt', 'first_at', 'settled_at', 'lease_until', 'replay_until', 'forget_at', 'codec', 'result',
    'error', 'holder'
}

local function text(number)
    return string.format('%.0f', number)
end

-- Only what is settled or released may ever be forgotten.
local function is_end(state)
    return state == 'settled' or state == 'released'
end

local function row(key)
    return redis.call('HMGET', key, unpack(FIELDS))
end

local function expire(key, forget_at)
    if forget_at < NEVER then
        redis.call('PEXPIREAT', key, text(math.ceil(forget_at / 1000) + GRACE))
    else
        redis.call('PERSIST', key)
    end
end

-- Delete a record and every trace of it but its fence, which no later claim may get again; says whether there was one
-- (1 or 0). `fence` is nil if only traces are left.
local function drop(id, family, fence)
    local record, ids, open, due, stale, families, floor = unpack(KEYS)
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
end
