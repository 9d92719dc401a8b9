-- Read a record: {now, row}, or {now, nil}.
--
-- KEYS  record

local found = row(KEYS[1])
return {now, found[10] and found}
