"""As much of protobuf as the protocol needs: numbers and bytes in numbered fields."""

from typing import Dict, List, Union

from ._errors import Broken

Value = Union[int, bytes]


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: Union[int, bytes, str]) -> bytes:
    """One field; what is zero or empty is left out."""
    if not value:
        return b""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def read(message: bytes) -> Dict[int, List[Value]]:
    """The fields of a message by their numbers."""
    fields: Dict[int, List[Value]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise Broken("a message is cut short")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        kind = key & 7
        if kind == 0:
            fields.setdefault(key >> 3, []).append(number())
            continue
        length = {1: 8, 5: 4}.get(kind) or (number() if kind == 2 else -1)
        if length < 0 or at + length > len(message):
            raise Broken("a message is not in order")
        fields.setdefault(key >> 3, []).append(message[at : at + length])
        at += length
    return fields


def number(fields: Dict[int, List[Value]], at: int) -> int:
    """The number in a field; zero if it is not there."""
    value = fields.get(at, [0])[-1]
    return value if isinstance(value, int) else 0


def text(fields: Dict[int, List[Value]], at: int) -> str:
    """The text in a field; empty if it is not there."""
    value = fields.get(at, [b""])[-1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
