"""The service `http`: HTTP requests without an HTTP connection."""

from typing import Dict, List, NamedTuple, Optional, Tuple

from . import _protobuf as protobuf
from ._client import Call
from ._errors import Broken


class HttpHead(NamedTuple):
    """The head of an answer."""

    status: int
    fields: List[Tuple[str, bytes]]


def http_request(
    target: str,
    method: str = "GET",
    fields: Optional[Dict[str, str]] = None,
    body: bytes = b"",
    address: str = "",
) -> bytes:
    """The body of a request to the service `http`."""
    lines = b"".join(
        protobuf.field(3, protobuf.field(1, name) + protobuf.field(2, value))
        for name, value in (fields or {}).items()
    )
    return (
        protobuf.field(1, method)
        + protobuf.field(2, target)
        + lines
        + protobuf.field(4, body)
        + protobuf.field(5, address)
    )


def read_http(call: Call) -> Tuple[HttpHead, bytes]:
    """Waits for a whole answer of the service `http`."""
    head: Optional[HttpHead] = None
    body = bytearray()
    for record in call:
        if head is None:
            message = protobuf.read(record)
            lines = [protobuf.read(line) for line in message.get(2, []) if isinstance(line, bytes)]
            fields = [(protobuf.text(line, 1), _bytes(line, 2)) for line in lines]
            head = HttpHead(protobuf.number(message, 1), fields)
        else:
            body += record
    call.answer()
    if head is None:
        raise Broken("an answer without a head")
    return head, bytes(body)


def _bytes(fields: Dict[int, List[protobuf.Value]], at: int) -> bytes:
    value = fields.get(at, [b""])[-1]
    return value if isinstance(value, bytes) else b""
