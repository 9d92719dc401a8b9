-- Put a packed row where the expected version stands, or say what stands there: {1, now, fence} or {0, now, row}.
--
-- KEYS  record, shard, names, forget, replay: one slot; then marks of an erasure, if any is to be looked for
-- ARGV  number of shards and a space, fence as in `fences.lua`, head and tail of the row: between
--       them stand its instant and its fence; expected (empty: nothing; else a byte with its length and the
--       version)

local record, shard, names = KEYS[1], KEYS[2], KEYS[3]
local count, fence, head, tail, expected = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local row = redis.call('GET', record)

local stands = row and string.sub(row, 2, 2 + (string.byte(row, 2) or 0)) or ''
if stands ~= expected then
    return {0, now, row}
end

-- A shard that is not there, or is one of another number, was not made by whoever made this caller's store.
local noted = redis.call('GET', shard)
if not noted or string.sub(noted, 1, #count) ~= count then
    return redis.error_reply('ONCEWARD this shard is not ready')
end

-- What was erased is not put back: not while its mark stands.
for place = 6, #KEYS do
    local mark = redis.call('GET', KEYS[place])
    if mark then
        local marked = opened(mark)
        if marked.forget < 0 or marked.at + marked.forget > now then
            return {0, now, row}
        end
    end
end

local lowest, kept = string.sub(noted, #count + 1), nil
fence, kept = fence_of(fence, lowest)

local id, letter = string.sub(record, -32), string.sub(head, 1, 1)
local family, ended = string.sub(head, 4 + string.byte(head, 2)), ENDED[letter]
local was_family, was_ended = '', false

-- Where nothing stands, what follows is the first write of the script: a server that is full refuses it, and nothing
-- has changed. Where something stands, something is deleted first, and a full server lets the rest pass: what has
-- happened can always be recorded.
if row then
    local version_length = string.byte(row, 2)
    was_family = string.sub(row, 4 + version_length, 3 + version_length + string.byte(row, 3 + version_length))
    was_ended = ENDED[string.sub(row, 1, 1)]
    if was_ended then
        redis.call('ZREM', KEYS[4], id .. was_family)
        redis.call('ZREM', KEYS[5], id)
    elseif ended then
        redis.call('ZREM', names, 'o' .. id)
    else
        redis.call('DEL', record)
    end
    if was_family ~= family and was_family ~= '' then
        redis.call('ZREM', names, 'f' .. was_family .. id)
    end
elseif ended then
    -- What the server dropped by itself, or somebody deleted, may have left traces.
    redis.call('ZREM', names, 'o' .. id)
end

local packed = head .. struct.pack('>i8', now) .. kept .. tail
local replay, forget, payload = struct.unpack('>i8i8I4', tail)
keep(record, packed, {state = letter, at = now, forget = forget})
-- Before the row can vanish: no later claim in this shard gets a fence that it had.
if less(lowest, fence) then
    redis.call('SET', shard, count .. fence)
end

-- The indexes: only what has to change.
if not row then
    redis.call('ZADD', names, 0, 'i' .. id)
end
if was_family ~= family and family ~= '' then
    redis.call('ZADD', names, 0, 'f' .. family .. id)
end
if not ended then
    if not row or was_ended then
        redis.call('ZADD', names, 0, 'o' .. id)
    end
    return {1, now, fence}
end
if forget >= 0 then
    redis.call('ZADD', KEYS[4], text(now + forget), id .. family)
end
if letter == 'S' and replay >= 0 and payload > 0 then
    redis.call('ZADD', KEYS[5], text(now + replay), id)
end
return {1, now, fence}
