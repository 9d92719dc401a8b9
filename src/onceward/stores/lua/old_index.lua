-- Members of an index of version 1 between two bounds, or how many it has; none if it was shut.
--
-- KEYS  index
-- ARGV  from, to, at most so many (-1: all); or none, to count

if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
    return #ARGV == 0 and 0 or {}
end
if #ARGV == 0 then
    return redis.call('ZCARD', KEYS[1])
end
return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
