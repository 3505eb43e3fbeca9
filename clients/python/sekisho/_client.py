"""The session: frames in and out, slots, channels and their credit."""

import collections
import os
import select
import socket
import struct
from types import TracebackType
from typing import Deque, Dict, Iterator, Optional, Tuple, Type, Union

from . import _protobuf as protobuf
from ._errors import Broken, Code, Ended, Failed, Lost, SekishoError

Address = Union[str, "os.PathLike[str]", Tuple[str, int]]

HEAD = struct.Struct("<IBBHI")  # length, kind, flags, slot, word

HELLO, WELCOME, BYE, SHUTDOWN, EXTEND, EXTENDED = 1, 2, 3, 4, 5, 6
REQUEST, RESULT, ERROR, CANCEL = 16, 17, 18, 19
ACQUIRED, RECORD, RELEASED, CREDIT, DRAINED = 32, 33, 34, 35, 36


def connect(
    address: Address,
    label: str = "",
    *,
    application: str = "",
    credential: bytes = b"",
    user: str = "",
    admin: bool = False,
    timeout: Optional[float] = 60.0,
) -> "Client":
    """Connects to a path of a Unix socket, "HOST:PORT" or (host, port), and says hello.

    The credential is a token or, with a user, that user's password.

    No wait for the server, then or later, lasts longer than `timeout` seconds without a byte; None is for ever.
    """
    if isinstance(address, tuple):
        stream = socket.create_connection(address, timeout=timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Client(stream, label, application, credential, admin, user)
    path = os.fspath(address)
    host, colon, port = path.rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        return connect(
            (host.strip("[]"), int(port)),
            label,
            application=application,
            credential=credential,
            user=user,
            admin=admin,
            timeout=timeout,
        )
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(timeout)
    try:
        stream.connect("\0" + path[1:] if path.startswith("@") else path)
    except OSError:
        stream.close()
        raise
    return Client(stream, label, application, credential, admin, user)


class Client:
    """A session. Not for several threads at once; several requests may run in it.

    A wait without a byte for longer than `timeout` seconds raises TimeoutError. The session goes on, and what was
    waited for may be waited for again.
    """

    def __init__(
        self,
        stream: socket.socket,
        label: str = "",
        application: str = "",
        credential: bytes = b"",
        admin: bool = False,
        user: str = "",
    ) -> None:
        self.timeout = stream.gettimeout()
        """How long a wait may be, in seconds; None is for ever."""
        stream.setblocking(False)
        self._stream = stream
        self._received = bytearray()
        self._calls: Dict[int, "Call"] = {}
        self._next_slot = 0
        self._end: Optional[SekishoError] = None
        self._extended: Optional[int] = None
        self.session = 0
        """The session's number."""
        self.frame_bytes_max = 0
        """The longest request, result or record."""
        self.requests_max = 0
        """How many requests may run at once."""
        hello = (
            protobuf.field(1, 1)
            + protobuf.field(3, label)
            + protobuf.field(4, application)
            + protobuf.field(5, credential)
            + protobuf.field(6, int(admin))
            + protobuf.field(9, user)
        )
        try:
            self._send(HELLO, 0, 0, hello)
            while not self.session:
                self._read()
        except BaseException:
            stream.close()
            raise

    def call(self, service: int, body: bytes = b"") -> bytes:
        """Makes a request and waits for its answer. Records that it sends are thrown away."""
        call = self.request(service, body)
        call.drain()
        return call.answer()

    def request(self, service: int, body: bytes = b"") -> "Call":
        """Makes a request. Others may run at the same time."""
        if self._end:
            raise self._end
        if len(body) > self.frame_bytes_max:
            raise Failed(Code.RESOURCE_LIMIT_REACHED, "the request is too long")
        if len(self._calls) >= min(self.requests_max, 1 << 16):
            raise Failed(Code.RESOURCE_LIMIT_REACHED, "the maximum number of running requests is reached")
        while self._next_slot in self._calls:
            self._next_slot = (self._next_slot + 1) % (1 << 16)
        slot = self._next_slot
        self._next_slot = (slot + 1) % (1 << 16)
        call = Call(self, slot)
        self._calls[slot] = call
        self._send(REQUEST, slot, service, body)
        return call

    def extend(self, seconds: float) -> float:
        """Asks for a longer life from now on; tells what the session has, in seconds."""
        self._extended = None
        self._send(EXTEND, 0, 0, protobuf.field(1, int(seconds * 1000)))
        while self._extended is None:
            self._read()
        return self._extended / 1000

    def shut_down(self, forceful: bool = False) -> None:
        """Asks for the end of the session and waits for it. By force, running requests are cancelled."""
        if not self._end:
            self._send(SHUTDOWN, 0, 0, protobuf.field(1, int(forceful)))
            try:
                while True:
                    self._read()
            except Lost:
                raise
            except Ended as ended:
                if ended.code is not None:
                    raise
        self.close()

    def close(self) -> None:
        """Lets the connection go. Without `shut_down` before, that counts as force."""
        self._stream.close()
        if not self._end:
            self._end = Ended(None, "the session was closed")

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and not self._end:
                for call in list(self._calls.values()):
                    call.drain()
                self.shut_down()
        finally:
            self.close()

    def _send(self, kind: int, slot: int, word: int = 0, payload: bytes = b"") -> None:
        if self._end:
            return
        rest = memoryview(HEAD.pack(len(payload), kind, 0, slot, word) + payload)
        while rest:
            try:
                rest = rest[self._stream.send(rest) :]
            except BlockingIOError:
                self._make_room()
            except OSError:
                return  # What the server said before it went may still be read.

    def _make_room(self) -> None:
        """A server that cannot get rid of its answers takes nothing: they are read until it does."""
        ready = self._wait(select.POLLIN | select.POLLOUT)
        if not ready:
            # Part of a frame has been sent, and which is not known: the session cannot go on.
            raise self._over(Lost("the server took nothing for too long"))
        if ready & ~select.POLLOUT:
            self._receive()

    def _wait(self, events: int) -> int:
        """Waits for the socket: what happened, or nothing after too long."""
        poll = select.poll()
        poll.register(self._stream, events)
        ready = poll.poll(None if self.timeout is None else self.timeout * 1000)
        return ready[0][1] if ready else 0

    def _receive(self) -> None:
        """Waits for bytes. They are kept until a frame is complete, however long that takes."""
        while True:
            try:
                part = self._stream.recv(1 << 16)
            except BlockingIOError:
                if not self._wait(select.POLLIN):
                    raise TimeoutError("the server said nothing for too long") from None
                continue
            except OSError as error:
                raise self._over(Lost(f"the connection failed: {error}")) from error
            if not part:
                raise self._over(Lost("the connection ended without a word"))
            self._received += part
            return

    def _over(self, end: SekishoError) -> SekishoError:
        self._end = self._end or end
        return self._end

    def _read(self) -> None:
        """Reads one frame and gives it to the call that it concerns."""
        if self._end:
            raise self._end
        while len(self._received) < HEAD.size:
            self._receive()
        length, kind, _flags, slot, _word = HEAD.unpack_from(self._received)
        if length > max(self.frame_bytes_max, 4096):
            raise self._over(Broken("a frame is longer than it may be"))
        while len(self._received) < HEAD.size + length:
            self._receive()
        payload = bytes(self._received[HEAD.size : HEAD.size + length])
        del self._received[: HEAD.size + length]
        try:
            self._take(kind, slot, payload)
        except Broken as broken:
            raise self._over(broken)

    def _take(self, kind: int, slot: int, payload: bytes) -> None:
        if kind == WELCOME:
            welcome = protobuf.read(payload)
            self.session = protobuf.number(welcome, 3)
            self.frame_bytes_max = protobuf.number(welcome, 4)
            self.requests_max = protobuf.number(welcome, 5)
            if not self.session:
                raise Broken("a session without a number")
        elif kind == BYE:
            bye = protobuf.read(payload)
            code = protobuf.number(bye, 1)
            text = protobuf.text(bye, 2) or "the session is over"
            if code == Code.UNSUPPORTED_OPERATION:
                text += f"; version {protobuf.number(bye, 3)}.{protobuf.number(bye, 4)} is"
            raise self._over(Ended(Code.of(code) if code else None, text))
        elif kind == EXTENDED:
            self._extended = protobuf.number(protobuf.read(payload), 1)
        else:
            call = self._calls.get(slot)
            if call is None:
                raise Broken(f"frame {kind} for slot {slot}, where no request runs")
            call._take(kind, payload)


class Call:
    """A request that was made: its channel's records, and its one answer."""

    def __init__(self, client: Client, slot: int) -> None:
        self._client = client
        self._slot = slot
        self._answer: Union[bytes, Failed, None] = None
        self._records: Deque[bytes] = collections.deque()
        self._acquired = self._released = self._drained = self._unwanted = False

    def answer(self) -> bytes:
        """Waits for the one answer; an error is raised as Failed."""
        while self._answer is None:
            self._client._read()
        if isinstance(self._answer, Failed):
            raise self._answer
        return self._answer

    def __iter__(self) -> Iterator[bytes]:
        """The records of the channel, as they come; none if there is no channel."""
        while True:
            if self._records:
                record = self._records.popleft()
                # Room for as much again.
                if not self._released:
                    self._client._send(CREDIT, self._slot, len(record) + HEAD.size)
                yield record
            elif self._released or self._drained or (self._answer is not None and not self._acquired):
                self._finish()
                return
            else:
                self._client._read()

    def cancel(self) -> None:
        """Asks for the request to be cancelled. Its answer still comes."""
        if self._answer is None:
            self._client._send(CANCEL, self._slot)

    def drain(self) -> None:
        """No more records are wanted; the answer still is."""
        self._unwanted = True
        self._finish()

    def _finish(self) -> None:
        if self._acquired and not self._drained:
            self._drained = True
            self._records.clear()
            self._client._send(DRAINED, self._slot)
            self._vacate()

    def _vacate(self) -> None:
        """The slot is free when the answer has come and the channel, if there was one, is drained."""
        if self._answer is not None and (self._drained or not self._acquired):
            self._client._calls.pop(self._slot, None)

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == RESULT:
            self._answer = payload
            self._vacate()
        elif kind == ERROR:
            failure = protobuf.read(payload)
            self._answer = Failed(Code.of(protobuf.number(failure, 1)), protobuf.text(failure, 2))
            self._vacate()
        elif kind == ACQUIRED:
            self._acquired = True
            if self._unwanted:
                self._finish()
        elif kind == RECORD:
            if not self._drained:
                self._records.append(payload)
        elif kind == RELEASED:
            self._released = True
        else:
            raise Broken(f"a frame of kind {kind}")
