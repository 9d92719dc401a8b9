-- Which of the commands that the other scripts use this user may not use here, each with what the server says.
--
-- KEYS  three that nobody uses, in one slot: they are gone again when this ends

local text_key, hash, sorted = unpack(KEYS)
local refused = {}

local function try(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        refused[#refused + 1] = select(1, ...) .. ': ' .. answer.err
    end
end

try('DEL', text_key, hash, sorted)
if #refused > 0 then
    return refused  -- What cannot be deleted is not written.
end
try('SET', text_key, '1')
try('GET', text_key)
try('MSET', text_key, '1')
try('SET', text_key, '1', 'PX', '60000')
try('TYPE', hash)
try('HSET', hash, 'field', '1')
try('ZADD', sorted, '0', 'member')
try('ZRANGEBYSCORE', sorted, '-inf', '0', 'LIMIT', 0, 1)
try('ZREM', sorted, 'member')
redis.call('DEL', text_key, hash, sorted)
return refused
