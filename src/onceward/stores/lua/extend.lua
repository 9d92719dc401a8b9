-- Give a settled record of a family that still replays more time; says whether it was one (1 or 0).
--
-- KEYS  record, shard, names, forget, replay: one slot
-- ARGV  id, family, replay, forget

local record, names, forget, replay = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local id, family = ARGV[1], ARGV[2]
local row = redis.call('GET', record)
local found = row and opened(row)

if not found or found.family ~= family then
    redis.call('ZREM', names, 'f' .. family .. id)
    return 0
end
if found.state ~= 'S' or found.replay < 0 or found.at + found.replay <= now then
    return 0
end
found.replay = math.max(found.replay, now - found.at + ARGV[3])
if found.payload > 0 then
    redis.call('ZADD', replay, text(found.at + found.replay), id)
end
if found.forget >= 0 then
    found.forget = math.max(found.forget, now - found.at + ARGV[4])
    redis.call('ZADD', forget, text(found.at + found.forget), id .. family)
end
local numbers = struct.pack('>i8i8', found.replay, found.forget)
keep(record, string.sub(row, 1, found.after - 1) .. numbers .. string.sub(row, found.after + 16), found)
return 1
