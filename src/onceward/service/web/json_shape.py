"""
How much there is in a long JSON text: asked before it is parsed.

A few megabytes of tiny members take a tenth of a second to parse, in which nothing else of this process goes on. No
request needs so many. Counting them takes a twentieth of that: what is outside of strings is left, and looked through
for commas, colons and brackets.
"""

from __future__ import annotations

from onceward.service.web.problems import RequestMalformed

MEMBERS_MAX = 20_000
"""Names of objects: a hundred statements with two hundred named parameters each."""
VALUES_MAX = 100_000
"""Elements and members together: a hundred statements with a thousand parameters each."""


def check_shape(read: bytes) -> None:
    """`RequestMalformed` if there is more in a JSON text than any request can have. What is no JSON may pass."""
    # A backslash that is escaped itself, then a quote that is: what is left of the quotes begins and ends strings.
    plain = read.replace(b"\\\\", b"").replace(b'\\"', b"")
    many = plain.count(b'"') // 2 > MEMBERS_MAX + VALUES_MAX
    outside = b"" if many else b"".join(plain.split(b'"')[::2])
    if many or outside.count(b":") > MEMBERS_MAX or max(map(outside.count, (b",", b"[", b"{"))) > VALUES_MAX:
        raise RequestMalformed(
            f"the body has more in it than a request can have: at most {MEMBERS_MAX} members of objects and "
            f"{VALUES_MAX} values. Nothing was run; send it in several requests"
        )
