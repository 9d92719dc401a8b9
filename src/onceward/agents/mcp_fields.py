"""
The names that keys and replays have in the `_meta` of MCP's messages: server, client and proxy agree on them here.

    request    params._meta["dev.onceward/key"]        one key for one call, the same when it is sent again
    result     result._meta["dev.onceward/replayed"]   true if this is the first answer, and the tool did not run again
               result._meta["dev.onceward/code"]       why a call was not made, such as "in_doubt"
"""

from typing import Final

KEY: Final = "dev.onceward/key"
REPLAYED: Final = "dev.onceward/replayed"
CODE: Final = "dev.onceward/code"
