-- After the last row of version 1 has moved: shut its indexes, so that what is left of version 1 is told, and not shown
-- an empty store. Says whether it is done (1), or there are rows yet (0).
--
-- KEYS  ids, open, due, stale, families: of version 1, one slot

if redis.call('TYPE', KEYS[1]).ok == 'zset' and redis.call('ZCARD', KEYS[1]) > 0 then
    return 0
end
for _, key in ipairs(KEYS) do
    redis.call('SET', key, 'records are of schema version 2: upgrade onceward')
end
return 1
