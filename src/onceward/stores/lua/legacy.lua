-- Whether a shard holds anything of version 1 (1 or 0).
--
-- KEYS  ids and floor of version 1: one slot

return redis.call('TYPE', KEYS[1]).ok == 'zset' and 1 or redis.call('TYPE', KEYS[2]).ok == 'string' and 1 or 0
