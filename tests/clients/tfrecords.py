"""TFRecord files without TensorFlow: each record between its length and their checksums. Tests write
them, and jobs bring this file to read a pipe.
"""

import struct


def _of_byte(value):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_of_byte(value) for value in range(256)]


def _checksum(content):
    """CRC-32C, turned and moved as TensorFlow has it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def written(records):
    """A file's content."""
    lengths = (struct.pack("<Q", len(record)) for record in records)
    return b"".join(it + _checksum(it) + record + _checksum(record) for it, record in zip(lengths, records))


def read(path):
    """The records of a file or pipe."""
    with open(path, "rb") as file:
        while length := file.read(8):
            assert file.read(4) == _checksum(length), "a length is damaged"
            record = file.read(*struct.unpack("<Q", length))
            assert file.read(4) == _checksum(record), "a record is damaged"
            yield record
