-- What a purge has to look at: {members of forget, members of replay}, each at most so many, the oldest first.
--
-- KEYS  forget, replay: one slot
-- ARGV  limit

local until_now = string.format('%.0f', now)
return {
    redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', until_now, 'LIMIT', 0, ARGV[1]),
    redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', until_now, 'LIMIT', 0, ARGV[1])
}
