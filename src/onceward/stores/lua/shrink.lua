-- Make an expired record a tombstone: its answer goes, who it was stays. Says whether there was one (1 or 0).
--
-- KEYS  record, shard, names, forget, replay: one slot
-- ARGV  id, version

local record, replay = KEYS[1], KEYS[5]
local row = redis.call('GET', record)
local found = row and opened(row)

if found and found.state == 'S' and found.replay >= 0 and found.at + found.replay > now then
    redis.call('ZADD', replay, text(found.at + found.replay), ARGV[1])
    return 0
end
redis.call('ZREM', replay, ARGV[1])
if not found or found.state ~= 'S' or found.replay < 0 or found.payload == 0 then
    return 0
end
local numbers = struct.pack('>i8i8I4', found.replay, found.forget, 0)
local rest = string.sub(row, found.after + 20, -found.payload - 1)
local between = string.sub(row, 3 + string.byte(row, 2), found.after - 1)
redis.call('SET', record, 'S' .. string.char(#ARGV[2]) .. ARGV[2] .. between .. numbers .. rest, 'KEEPTTL')
return 1
