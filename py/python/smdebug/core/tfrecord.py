"""TFRecord: the frame of records in an event file (length, its checksum, content, its checksum)."""

import struct
from collections.abc import Iterator

from smdebug.exceptions import SMDebugRuntimeError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C as TFRecord stores it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


#: AWS's library has this checksum for every content unless it is configured to compute them: they cost
#: more than the rest of the write. Its reader expects it.
UNCHECKED = masked_crc32c(b"0x12345678")


def record(payload: bytes, checksum: bool = False) -> bytes:
    """The payload in its frame."""
    length = struct.pack("<Q", len(payload))
    crc = masked_crc32c(payload) if checksum else UNCHECKED
    return b"".join((length, _FOOTER.pack(masked_crc32c(length)), payload, _FOOTER.pack(crc)))


def records(data: bytes) -> Iterator[bytes]:
    """The payloads of whole records.

    Raises SMDebugRuntimeError where a record is cut off or its checksum is wrong.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise SMDebugRuntimeError(f"a record is cut off at byte {at}")
        length, crc = _HEADER.unpack_from(data, at)
        if crc != masked_crc32c(data[at : at + 8]):
            raise SMDebugRuntimeError(f"the length of the record at byte {at} has a wrong checksum")
        begin = at + _HEADER.size
        if length > len(data) - begin - _FOOTER.size:
            raise SMDebugRuntimeError(f"the record at byte {at} is cut off: its length is {length} bytes")
        payload = data[begin : begin + length]
        (crc,) = _FOOTER.unpack_from(data, begin + length)
        if crc != UNCHECKED and crc != masked_crc32c(payload):
            raise SMDebugRuntimeError(f"the record at byte {at} has a wrong checksum")
        yield payload
        at = begin + length + _FOOTER.size
