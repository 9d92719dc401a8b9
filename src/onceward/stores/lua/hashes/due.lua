-- What a purge has to look at: {members of due, members of stale}, each at most so many, the oldest first.
--
-- KEYS  due, stale: one slot
-- ARGV  limit

local until_now = text(now)
return {
    redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', until_now, 'LIMIT', 0, ARGV[1]),
    redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', until_now, 'LIMIT', 0, ARGV[1])
}
