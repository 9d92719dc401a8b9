-- Put a record where the expected version stands, or say what stands there: {1, now, fence} or {0, now, row}.
--
-- KEYS  record, ids, open, due, stale, families, floor: one slot; then marks of an erasure, if any is to be looked for
-- ARGV  expected ('-' for none, '=' and a version), id, family, state, rise, fence, first_at, settled_at, lease,
--       replay, forget, full, then the other fields and their values

local record, ids, open, due, stale, families, floor = unpack(KEYS)
local expected, id, family, state = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local old = redis.call('HMGET', record, 'version', 'state', 'family')
local stands, was_family = old[1], old[3] or ''

if (stands and '=' .. stands or '-') ~= expected then
    return {0, now, stands and row(record)}
end

-- What was erased is not put back: not while its mark stands.
for place = 8, #KEYS do
    local mark = redis.call('HMGET', KEYS[place], 'version', 'forget_at')
    if mark[1] and (not mark[2] or tonumber(mark[2]) > now) then
        return {0, now, stands and row(record)}
    end
end

local fence, lowest = ARGV[6], redis.call('GET', floor)
if ARGV[5] == '1' then
    local clock = text(now)
    if less(fence, clock) then
        fence = clock
    end
    if lowest and not less(lowest, fence) then
        fence = following(lowest)
    end
end

-- The fields: those that are decided here take the place of what they were decided from, the others follow.
local fields = {'state', state, 'fence', fence, 'first_at', ARGV[7] == '0' and text(now) or ARGV[7], unpack(ARGV, 13)}

-- The instant that lies so far ahead, if any.
local function put_instant(name, duration)
    if duration == '' then
        return nil
    end
    local instant, count = now + duration, #fields
    fields[count + 1], fields[count + 2] = name, text(instant)
    return instant
end

put_instant('lease_until', ARGV[9])
local replay_until = put_instant('replay_until', ARGV[10])
local forget_at = put_instant('forget_at', ARGV[11])
if ARGV[8] ~= '' then
    local count = #fields
    fields[count + 1], fields[count + 2] = 'settled_at', ARGV[8] == '0' and text(now) or ARGV[8]
end

-- Where nothing stands, this is the first write of the script: a server that is full refuses it, and nothing has
-- changed. Where something stands, a full server lets it pass: what has happened can always be recorded.
if stands then
    redis.call('DEL', record)
end
redis.call('HSET', record, unpack(fields))

-- The indexes: only what has to change.
local was_ended, is_ended = is_end(old[2]), is_end(state)
if not stands then
    redis.call('ZADD', ids, 0, id)
elseif was_ended then
    redis.call('ZREM', due, id .. was_family)
    redis.call('ZREM', stale, id)
end
if was_family ~= family then
    if was_family ~= '' then
        redis.call('ZREM', families, was_family .. id)
    end
    if family ~= '' then
        redis.call('ZADD', families, 0, family .. id)
    end
end
if not is_ended then
    if not stands or was_ended then
        redis.call('ZADD', open, 0, id)
    end
    return {1, now, fence}
end
-- What the server dropped by itself, or somebody deleted, may have left traces: so this is not left out.
redis.call('ZREM', open, id)
if forget_at then
    redis.call('ZADD', due, text(forget_at), id .. family)
    expire(record, forget_at)
    -- Before the row can vanish: no later claim in this shard gets a fence that it had.
    if not lowest or less(lowest, fence) then
        redis.call('SET', floor, fence)
    end
end
if state == 'settled' and replay_until and ARGV[12] == '1' then
    redis.call('ZADD', stale, text(replay_until), id)
end
return {1, now, fence}
