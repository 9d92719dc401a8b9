-- The fence that a put gets, and how it is kept in the row. `given` is '+' or '*' and the least that it may be, or '='
-- and the fence, or the fence alone. With '*' and '=' the fence may be the instant at which the record was first
-- claimed, as it usually is: then it is left out.
local function fence_of(given, lowest)
    local sign = string.byte(given)
    if sign == 61 then
        return string.sub(given, 2), '\0'
    elseif sign ~= 43 and sign ~= 42 then
        return given, string.char(#given) .. given
    end
    local fence, clock = string.sub(given, 2), string.format('%.0f', now)
    if less(fence, clock) then
        fence = clock
    end
    if not less(lowest, fence) then
        fence = following(lowest)
    end
    return fence, sign == 42 and fence == clock and '\0' or string.char(#fence) .. fence
end
