"""A client for Sekisho's native protocol (docs/protocol.md), over TCP, TLS, Unix sockets and shared memory."""

from ._client import Call, Client, connect
from ._errors import Broken, Code, Ended, Failed, Lost, SekishoError
from ._http import HttpHead, http_request, read_http

CONTROL = 1
"""The number of the service `control`."""
HTTP = 2
"""The number of the service `http`."""
ECHO = 3
"""The number of the service `echo`."""

__all__ = [
    "CONTROL",
    "ECHO",
    "HTTP",
    "Broken",
    "Call",
    "Client",
    "Code",
    "Ended",
    "Failed",
    "HttpHead",
    "Lost",
    "SekishoError",
    "connect",
    "http_request",
    "read_http",
]
