-- What is noted about the store, after a change if it was as expected; '' if nothing is.
--
-- KEYS  schema
-- ARGV  what must be noted there for the change ('': nothing), what to note; or none, to read only

local found = redis.call('GET', KEYS[1]) or ''
if #ARGV == 2 and found == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2])
    found = ARGV[2]
end
return found
