-- What the scripts on packed rows begin with. Times are microseconds on this server's clock; a caller's plays no role.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
