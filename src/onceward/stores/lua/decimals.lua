-- Fences are kept as decimal text: Lua counts in doubles, and a fence may lie beyond 2^53.

-- Whether one decimal number is less than another, whatever their size.
local function less(a, b)
    return #a < #b or (#a == #b and a < b)
end

-- The next decimal number, whatever its size.
local function following(number)
    local head, nines = string.match(number, '^(%d-)(9*)$')
    if head == '' then
        head = '0'
    end
    return string.sub(head, 1, -2) .. (string.sub(head, -1) + 1) .. string.rep('0', #nines)
end
