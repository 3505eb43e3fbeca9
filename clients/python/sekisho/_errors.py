"""What can go wrong."""

import enum
from typing import Optional


class Code(enum.IntEnum):
    """What went wrong, for a program to act on. The numbers never change."""

    UNKNOWN = 1
    SYSTEM_ERROR = 2
    UNSUPPORTED_OPERATION = 3
    ILLEGAL_STATE = 4
    AUTHENTICATION_ERROR = 5
    PERMISSION_ERROR = 6
    IO_ERROR = 7
    RESOURCE_LIMIT_REACHED = 8
    SESSION_CLOSED = 9
    SESSION_EXPIRED = 10
    SERVICE_NOT_FOUND = 11
    SERVICE_UNAVAILABLE = 12
    INVALID_REQUEST = 13
    OPERATION_CANCELLED = 14
    OPERATION_DENIED = 15
    DEADLINE_EXCEEDED = 16

    @classmethod
    def of(cls, number: int) -> "Code":
        """The code with this number; one that is not known is UNKNOWN."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class SekishoError(Exception):
    """Anything that went wrong."""


class Failed(SekishoError):
    """A request was answered with an error. The session goes on."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code.name}: {text}")
        self.code = code
        self.text = text


class Ended(SekishoError):
    """The session is over. `code` is None when we asked for it, or when no reason was given."""

    def __init__(self, code: Optional[Code], text: str) -> None:
        super().__init__(f"{code.name}: {text}" if code else text)
        self.code = code
        self.text = text


class Lost(Ended):
    """The connection failed, or ended without a word."""

    def __init__(self, text: str) -> None:
        super().__init__(None, text)


class Broken(SekishoError):
    """The server does not keep to the protocol."""
