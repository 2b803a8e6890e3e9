"""As much of protocol buffers as TensorFlow's events need: fields of varints, fixed numbers and
bytes, to and from bytes. No schema: who reads knows the numbers of the fields.
"""

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
#: More bytes than a varint of 64 bits has are a mistake.
_LONGEST = 10


def varint(value: int) -> bytes:
    """A whole number; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def whole(field: int, value: int) -> bytes:
    """A field that is a whole number."""
    return varint(field << 3 | VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of 64 bits."""
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A field of 32 bits."""
    return varint(field << 3 | FIXED32) + struct.pack("<f", value)


def content(field: int, value: bytes) -> bytes:
    """A field that is bytes, text or a message."""
    return varint(field << 3 | BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A field that is text."""
    return content(field, value.encode())


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it."""
    value = 0
    for count in range(_LONGEST):
        if at >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Number, kind and value of each field; fixed numbers as their bytes.

    Raises ValueError where the bytes are no message.
    """
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == BYTES:
            length, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"a field has the unknown kind {kind}")
        if length > len(data) - at:
            raise ValueError("a field is longer than its message")
        yield key >> 3, kind, data[at : at + length]
        at += length


def signed(value: int) -> int:
    """A varint as a signed number of 64 bits."""
    return value - (1 << 64) if value >> 63 else value
