"""
SHA-256 as one SQLite expression: plain SQLite has no such function, and printed SQL must run in any SQLite.

The recursive query `s` walks through FIPS 180-4: `a` to `h` are the working variables, `i0` to `i7` the hash so far,
`w0` to `w15` the next words of the message schedule, `k` the constant of this round, `x` the padded message in
hexadecimal, and `n` counts steps. A block takes 64 rounds, and one step more that adds up and reads the next block.
It takes about a millisecond for a row: good for printed SQL, while `migrate apply` computes keys in Python.
"""

# ruff: noqa: S608 - names come from `quote`, and values are bound

from __future__ import annotations

from math import isqrt

_MASK = 0xFFFFFFFF
_LETTERS = tuple("abcdefgh")
_SUMS = tuple(f"i{index}" for index in range(8))
_WORDS = tuple(f"w{index}" for index in range(16))
_STEPS = 65
_PRINTED = "printf('%08x', {})"


def sha256_of(text: str) -> str:
    """The SQL for the SHA-256 of a text in UTF-8, in lower-case hexadecimal. `text` is SQL, too."""
    initial = [str(isqrt(prime << 64) & _MASK) for prime in _primes(8)]
    constants = [_cube_root(prime << 96) & _MASK for prime in _primes(64)]
    start = ["x", "0", str(constants[0]), *initial, *initial, *(_word("x", f"{8 * index + 1}") for index in range(16))]
    added = [f"({total} + {letter}) & {_MASK}" for total, letter in zip(_SUMS, _LETTERS, strict=True)]
    read = [_word("x", f"128 * ((n + 1) / {_STEPS}) + {8 * index + 1}") for index in range(16)]
    names = ", ".join(["x", "n", "k", *_LETTERS, *_SUMS, *_WORDS])
    return (
        f"(WITH RECURSIVE m(b) AS (SELECT CAST({text} AS BLOB)),\n"
        f"  p(x) AS (SELECT hex(b) || '80' || hex(zeroblob((119 - length(b) % 64) % 64))"
        f" || printf('%016X', 8 * length(b)) FROM m),\n"
        f"  s({names}) AS (\n"
        f"    SELECT {', '.join(start)} FROM p\n"
        f"    UNION ALL SELECT {', '.join(_round(constants))} FROM s WHERE n % {_STEPS} < 64\n"
        f"    UNION ALL SELECT x, n + 1, {constants[0]}, {', '.join([*added, *added, *read])} FROM s\n"
        f"      WHERE n % {_STEPS} = 64 AND n < {_STEPS} * (length(x) / 128))\n"
        f"  SELECT {' || '.join(_PRINTED.format(total) for total in _SUMS)} FROM s"
        f" WHERE n = {_STEPS} * (length(x) / 128))"
    )


def _round(constants: list[int]) -> list[str]:
    """One round: the new working variables, and the schedule moved on by a word."""
    cases = " ".join(f"WHEN {index - 1} THEN {constant}" for index, constant in enumerate(constants) if index)
    next_constant = f"CASE n % {_STEPS} {cases} END"
    first = f"h + {_mix('e', 6, 11, 25)} + ((e & f) + ((~e) & g)) + k + w0"
    second = f"{_mix('a', 2, 13, 22)} + ((a & b) | (a & c) | (b & c))"
    small = f"{_xor(_rotate('w1', 7), _rotate('w1', 18), '(w1 >> 3)')}"
    large = f"{_xor(_rotate('w14', 17), _rotate('w14', 19), '(w14 >> 10)')}"
    following = f"(w0 + {small} + w9 + {large}) & {_MASK}"
    moved = [f"({first} + {second}) & {_MASK}", "a", "b", "c", f"(d + {first}) & {_MASK}", "e", "f", "g"]
    return ["x", "n + 1", next_constant, *moved, *_SUMS, *_WORDS[1:], following]


def _mix(word: str, *bits: int) -> str:
    return _xor(*(_rotate(word, count) for count in bits))


def _rotate(word: str, bits: int) -> str:
    return f"(({word} >> {bits}) | (({word} << {32 - bits}) & {_MASK}))"


def _xor(first: str, second: str, third: str) -> str:
    """SQLite has no XOR; a full adder has: a + b + c is the XOR plus twice the majority."""
    majority = f"(({first} & {second}) | ({first} & {third}) | ({second} & {third}))"
    return f"({first} + {second} + {third} - 2 * {majority})"


def _word(digits: str, at: str) -> str:
    """Eight hexadecimal digits as a number."""
    parts = (
        f"((instr('0123456789ABCDEF', substr({digits}, {at} + {place}, 1)) - 1) << {28 - 4 * place})"
        for place in range(8)
    )
    return f"({' + '.join(parts)})"


def _primes(count: int) -> list[int]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found


def _cube_root(number: int) -> int:
    """Rounded down."""
    low, high = 0, 1 << 40
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low
