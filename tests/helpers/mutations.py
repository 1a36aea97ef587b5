"""PYTEST_DONT_REWRITE

Damage by machine: random changes of text files, blind ones and such as know what a number, a line or a block is.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Mutate = Callable[[random.Random, bytes], bytes]

NUMBERS = [
    b"0", b"1", b"-1", b"2", b"-0.0", b"0.5", b"1e9", b"1e400", b"2147483647", b"2147483648", b"4294967296",
    b"4000000000", b"300000000", b"9223372036854775807", b"9223372036854775808", b"99999999999999999999999",
    b"9" * 5000, b"true", b"null", b"NaN", b"Infinity", b'"inf"', b'"nan:7fc00001"', b'"nan:zz"', b"[]", b"{}",
    b'""', b"[1]", b"0x10", b"1_000",
]  # fmt: skip
STRINGS = [
    b'""', b'"a"', b'"\\ud800"', b'"\\u0000"', b'"value"', b'"' + b"x" * 100_000 + b'"', b"null", b"1", b"[]",
    b'{"a": 1, "a": 2}', b'"\xff"',
]  # fmt: skip
WORDS = [
    b"float32",
    b"float64",
    b"int8",
    b"int64",
    b"bool",
    b"complex64",
    b"bfloat16",
    b"json",
    b"float0",
    b"object",
    b"V8",
    b"U9",
]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_ODD = [0, 9, 10, 13, 32, 34, 39, 44, 58, 91, 92, 123, 255]
_WORD = re.compile(rb"\b(?:float|int|uint|bool|complex|bfloat|json|key)\w*\b")
_LISTS = re.compile(rb"\[[\d, ]*\]")


def flip_bit(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << r.randrange(8))]) + data[at + 1 :]


def set_byte(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return data[:at] + bytes([r.choice([*_ODD, r.randrange(256)])]) + data[at + 1 :]


def insert_bytes(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data) + 1)
    return data[:at] + r.randbytes(r.choice([1, 2, 5, 100])) + data[at:]


def delete_bytes(r: random.Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    return data[:at] + data[at + r.choice([1, 2, 5, 50, 500]) :]


def cut_off(r: random.Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def repeat_bytes(r: random.Random, data: bytes) -> bytes:
    at, size = r.randrange(len(data)), r.choice([1, 10, 100, 1000])
    return data[: at + size] + data[at : at + size] * r.choice([1, 1, 100]) + data[at + size :]


def _of_lines(change: Callable[[random.Random, list[bytes]], None]) -> Mutate:
    def mutate(r: random.Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        change(r, lines)
        return b"\n".join(lines)

    return mutate


def _run(r: random.Random, lines: list[bytes]) -> tuple[int, int]:
    start = r.randrange(len(lines))
    return start, min(len(lines), start + r.choice([1, 1, 1, 2, 3, 10, 40]))


def _delete_lines(r: random.Random, lines: list[bytes]) -> None:
    start, end = _run(r, lines)
    del lines[start:end]


def _repeat_lines(r: random.Random, lines: list[bytes]) -> None:
    start, end = _run(r, lines)
    lines[end:end] = lines[start:end]


def _move_lines(r: random.Random, lines: list[bytes]) -> None:
    start, end = _run(r, lines)
    taken = lines[start:end]
    del lines[start:end]
    at = r.randrange(len(lines) + 1)
    lines[at:at] = taken


def _copy_line(r: random.Random, lines: list[bytes]) -> None:
    lines[r.randrange(len(lines))] = r.choice(lines)


def _swap_lines(r: random.Random, lines: list[bytes]) -> None:
    i, j = r.randrange(len(lines)), r.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]


def _break_line(r: random.Random, lines: list[bytes]) -> None:
    at = r.randrange(len(lines))
    place = r.randrange(len(lines[at]) + 1)
    lines[at : at + 1] = [lines[at][:place], lines[at][place:]]


def _join_lines(r: random.Random, lines: list[bytes]) -> None:
    at = r.randrange(len(lines))
    lines[at : at + 2] = [b"".join(lines[at : at + 2])]


def _add_line(r: random.Random, lines: list[bytes]) -> None:
    odd = [b"", b"<<<<<<< HEAD", b"=======", b"end", b"value", b"{}", b"[" * 100_000, b"environment", b"x" * 1_000_000]
    lines.insert(r.randrange(len(lines) + 1), r.choice(odd))


_START = re.compile(
    rb'entry |environment$|stream \{|value$|leaf |rows |index |end|type |\{"(?:define|stream|alert|finding)"'
)


def _blocks(lines: list[bytes]) -> list[tuple[int, int]]:
    """Runs of lines from one head to the next of any later one."""
    heads = [number for number, line in enumerate(lines) if _START.match(line)]
    return [(a, b) for i, a in enumerate(heads) for b in [*heads[i + 1 : i + 8], len(lines)]]


def _repeat_block(r: random.Random, lines: list[bytes]) -> None:
    start, end = r.choice(_blocks(lines) or [(0, 1)])
    at = r.choice([end, r.randrange(len(lines) + 1)])
    lines[at:at] = lines[start:end]


def _delete_block(r: random.Random, lines: list[bytes]) -> None:
    start, end = r.choice(_blocks(lines) or [(0, 1)])
    del lines[start:end]


def _substitute(pattern: re.Pattern[bytes], others: Callable[[random.Random, bytes], bytes]) -> Mutate:
    def mutate(r: random.Random, data: bytes) -> bytes:
        found = list(pattern.finditer(data))
        if not found:
            return data
        match = r.choice(found)
        return data[: match.start()] + others(r, match[0]) + data[match.end() :]

    return mutate


def _other_number(r: random.Random, number: bytes) -> bytes:
    if r.random() < 0.4 and number.lstrip(b"-").isdigit():
        return str(int(number) + r.choice([-1, 1, 10, 1000])).encode()
    if r.random() < 0.2:
        at = r.randrange(len(number))
        return number[:at] + str(r.randrange(10)).encode() + number[at + 1 :]
    return r.choice(NUMBERS)


def _other_list(r: random.Random, text: bytes) -> bytes:
    items = text.strip(b"[]").split(b", ") if text != b"[]" else []
    change = r.randrange(5)
    if change == 0 and items:
        items.pop(r.randrange(len(items)))
    elif change == 1:
        items.insert(r.randrange(len(items) + 1), r.choice(NUMBERS))
    elif change == 2 and items:
        items[r.randrange(len(items))] = r.choice(NUMBERS)
    elif change == 3:
        items.reverse()
    else:
        return b"[" * r.choice([1, 2, 1000, 100_000]) + text
    return b"[" + b", ".join(items) + b"]"


#: Ways to damage a text file, by name.
MUTATIONS: dict[str, Mutate] = {
    "flip a bit": flip_bit,
    "set a byte": set_byte,
    "insert bytes": insert_bytes,
    "delete bytes": delete_bytes,
    "cut off": cut_off,
    "repeat bytes": repeat_bytes,
    "delete lines": _of_lines(_delete_lines),
    "repeat lines": _of_lines(_repeat_lines),
    "move lines": _of_lines(_move_lines),
    "copy a line": _of_lines(_copy_line),
    "swap lines": _of_lines(_swap_lines),
    "break a line": _of_lines(_break_line),
    "join lines": _of_lines(_join_lines),
    "add a line": _of_lines(_add_line),
    "repeat a block": _of_lines(_repeat_block),
    "delete a block": _of_lines(_delete_block),
    "change a number": _substitute(_NUMBER, _other_number),
    "change a text": _substitute(_STRING, lambda r, _: r.choice(STRINGS)),
    "change a list": _substitute(_LISTS, _other_list),
    "change a dtype": _substitute(_WORD, lambda r, _: r.choice(WORDS)),
}


def damaged(seed: int, data: bytes) -> tuple[str, bytes]:
    """A file damaged at random: in words, and its content."""
    r = random.Random(seed)
    name = r.choice(list(MUTATIONS))
    return name, MUTATIONS[name](r, data)
