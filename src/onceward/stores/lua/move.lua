-- Pack a row of version 1 and note it in the indexes of version 2; says whether there was one (1 or 0).
--
-- KEYS  record, shard, names, forget, replay, then those of version 1: record, ids, open, due, stale, families
-- ARGV  id, then the words of version 2 with their numbers: kinds, guarantees (each on a line: word=number)

local record, names, forget, replay = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local old, ids, open, due, stale, families = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id = ARGV[1]
if redis.call('TYPE', ids).ok == 'string' then
    return 0  -- All of this shard has moved, and its indexes are shut.
end
local LETTERS = {claimed = 'C', settled = 'S', released = 'R', in_doubt = 'D'}
local found = {}
local flat = redis.call('HGETALL', old)
for place = 1, #flat, 2 do
    found[flat[place]] = flat[place + 1]
end
local family = found.family or ''

local function tidy()
    redis.call('DEL', old)
    redis.call('ZREM', ids, id)
    redis.call('ZREM', open, id)
    redis.call('ZREM', stale, id)
    redis.call('ZREM', due, id .. family)
    redis.call('ZREM', families, family .. id)
end

if not found.version then
    tidy()
    return 0
end

local function code(words, word)
    local _, place = string.find(words, '\n' .. word .. '=', 1, true)
    return place and tonumber(string.match(words, '^%d+', place + 1)) or 0
end

local function short(word)
    return string.char(#word) .. word
end

-- Instants become times since the claim: a row has one instant.
local at = tonumber(found.first_at)
local function since(instant)
    return instant and math.max(0, tonumber(instant) - at) or -1
end

local payload = ''
if found.codec or found.result or found.error then
    payload = string.char((found.codec and 1 or 0) + (found.result and 2 or 0) + (found.error and 4 or 0))
    payload = payload .. short(found.codec or '') .. struct.pack('>I4', #(found.error or '')) .. (found.error or '')
    payload = payload .. (found.result or '')
end
local kind, guarantee = code(ARGV[2], found.kind), code(ARGV[3], found.guarantee)
local flags = (found.lease_until and 1 or 0) + (found.settled_at and 2 or 0) + (found.holder and 16 or 0)
local letter = LETTERS[found.state] or 'X'
local moved = {
    state = letter, at = at, replay = since(found.replay_until), forget = since(found.forget_at), payload = #payload
}
local row = table.concat({
    letter, short(found.version), short(family), struct.pack('>i8', at), found.fence == found.first_at and '\0' or short(found.fence),
    struct.pack('>i8i8I4', moved.replay, moved.forget, #payload),
    struct.pack('>I1I1I1I1I4', flags, kind, guarantee, found.doubt, found.attempt),
    struct.pack('>I1I1I2I2I2', #found.fingerprint, #found.token, #found.scope, #found.key, #found.operation),
    found.lease_until and struct.pack('>i8', since(found.lease_until)) or '',
    found.settled_at and struct.pack('>i8', found.settled_at) or '',
    found.fingerprint, found.token, found.scope, found.key, found.operation,
    kind == 0 and short(found.kind) or '', guarantee == 0 and short(found.guarantee) or '',
    letter == 'X' and short(found.state) or '',
    found.holder and struct.pack('>I2', #found.holder) .. found.holder or '',
    payload
})

-- Tidied first: a server that is full lets pass what follows a deletion.
tidy()
keep(record, row, moved)
redis.call('ZADD', names, 0, 'i' .. id)
if family ~= '' then
    redis.call('ZADD', names, 0, 'f' .. family .. id)
end
if not ENDED[letter] then
    redis.call('ZADD', names, 0, 'o' .. id)
    return 1
end
if moved.forget >= 0 then
    redis.call('ZADD', forget, text(at + moved.forget), id .. family)
    raise(KEYS[2], found.fence)
end
if letter == 'S' and moved.replay >= 0 and #payload > 0 then
    redis.call('ZADD', replay, text(at + moved.replay), id)
end
return 1
