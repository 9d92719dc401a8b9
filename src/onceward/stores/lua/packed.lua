-- A packed row, taken apart and written. `_redis_packed_rows.py` says how a row is packed.

-- A forgotten record stays this much longer (milliseconds) before the server drops it by itself, so that a purge
-- normally meets it and tidies the indexes in the same go. For the rules it is absent from its time on.
local GRACE = 60000

-- Instants beyond this cannot be told apart by a double, nor be an expiry: two hundred years from now.
local NEVER = 9007199254740992

-- Bytes of numbers after the fence, and the flag that says that the instant of the first claim follows them.
local TAIL, FIRST = 36, 8

local ENDED = {S = true, R = true}

local function text(number)
    return string.format('%.0f', number)
end

-- Where in a row the numbers are: its family, its instant, its fence, the place after the fence, and what stands there.
local function opened(row)
    local version_length = string.byte(row, 2)
    local family_length = string.byte(row, 3 + version_length)
    local place = 4 + version_length + family_length
    local fence_length = string.byte(row, place + 8)
    local after = place + 9 + fence_length
    local replay, forget, payload, flags = struct.unpack('>i8i8I4I1', row, after)
    local at, fence = struct.unpack('>i8', row, place), string.sub(row, place + 9, after - 1)
    if fence == '' then
        fence = text(math.floor(flags / FIRST) % 2 == 1 and struct.unpack('>i8', row, after + TAIL) or at)
    end
    return {
        state = string.sub(row, 1, 1),
        family = string.sub(row, 4 + version_length, place - 1),
        at = at,
        fence = fence,
        after = after,
        replay = replay,
        forget = forget,
        payload = payload
    }
end

-- Write a row under the expiry that it is to have.
local function keep(record, row, found)
    if ENDED[found.state] and found.forget >= 0 and found.at + found.forget < NEVER then
        local left = math.ceil((found.at + found.forget - now) / 1000) + GRACE
        redis.call('SET', record, row, 'PX', text(math.max(1, left)))
    else
        redis.call('SET', record, row)
    end
end
