"""The session: frames in and out, slots, channels, bodies and their credit."""

import collections
import os
import select
import socket
import ssl
import struct
from types import TracebackType
from typing import Deque, Dict, Iterator, Optional, Set, Tuple, Type, Union

from . import _protobuf as protobuf
from ._errors import Broken, Code, Ended, Failed, Lost, SekishoError
from ._shared import SharedMemoryStream
from ._tls import TlsStream, client_context, parse

Address = Union[str, "os.PathLike[str]", Tuple[str, int]]

HEAD = struct.Struct("<IBBHI")  # length, kind, channel, slot, word

HELLO, WELCOME, BYE, SHUTDOWN, EXTEND, EXTENDED = 1, 2, 3, 4, 5, 6
PING, PONG = 7, 8
REQUEST, RESULT, ERROR, CANCEL, OPTIONS = 16, 17, 18, 19, 20
ACQUIRED, RECORD, RELEASED, CREDIT, DRAINED = 32, 33, 34, 35, 36
DATA, DATA_END, DATA_CREDIT, DATA_STOP = 48, 49, 50, 51


def connect(
    address: Address,
    label: str = "",
    *,
    application: str = "",
    credential: bytes = b"",
    user: str = "",
    admin: bool = False,
    timeout: Optional[float] = 60.0,
    ssl_context: Optional[ssl.SSLContext] = None,
) -> "Client":
    """Connects to "tcp://HOST:PORT", "tls://HOST:PORT", "unix:PATH" or "ipc:PATH" (shared memory), and says hello. A
    path of a Unix socket, "HOST:PORT" and (host, port) will do as well.

    "tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME" has the authorities that are trusted (those of the system, if
    none is named), the client's certificate and its key (PEM), and the name in the server's certificate, if that is not
    HOST. `ssl_context` takes the place of `ca`, `cert` and `key`.

    The credential is a token or, with a user, that user's password.

    No wait for the server, then or later, lasts longer than `timeout` seconds without a byte; None is for ever.
    """
    if isinstance(address, tuple):
        stream = socket.create_connection(address, timeout=timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Client(stream, label, application, credential, admin, user)
    path = os.fspath(address)
    if path.startswith("tls://"):
        host, number, options = parse(path)
        # Files are read before there is a connection.
        context = ssl_context or client_context(options)
        stream = socket.create_connection((host, number), timeout=timeout)
        try:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = TlsStream(stream, context, options.get("name", host))
        except BaseException:
            stream.close()
            raise
        return Client(secured, label, application, credential, admin, user)
    is_shared = path.startswith("ipc:")
    if path.startswith(("unix:", "ipc:")):
        path = path.partition(":")[2]
        colon, port, host = "", "", ""
    elif path.startswith("tcp://"):
        host, colon, port = path[6:].rpartition(":")
        if not port.isdigit():
            raise ValueError(f"{path} is no address: tcp://HOST:PORT")
    else:
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
    if is_shared:
        return Client(SharedMemoryStream(stream), label, application, credential, admin, user)
    return Client(stream, label, application, credential, admin, user)


class Client:
    """A session. Not for several threads at once; several requests may run in it.

    A wait without a byte for longer than `timeout` seconds raises TimeoutError. The session goes on, and what was
    waited for may be waited for again.
    """

    def __init__(
        self,
        stream: Union[socket.socket, SharedMemoryStream, TlsStream],
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
        self.minor = 0
        """The minor version of the protocol that both sides speak."""
        self.part_bytes_max = 0
        """The longest part of a body that goes on."""
        self._window = 0
        self._drains_at_end = False
        hello = (
            protobuf.field(1, 1)
            + protobuf.field(2, 1)
            + protobuf.field(3, label)
            + protobuf.field(4, application)
            + protobuf.field(5, credential)
            + protobuf.field(6, int(admin))
            + protobuf.field(9, user)
            + protobuf.field(17, 1)
        )
        try:
            self._send(HELLO, 0, 0, hello)
            while not self.session:
                self._read()
        except BaseException:
            stream.close()
            raise

    def call(self, service: Union[int, str], body: bytes = b"", *, timeout: Optional[float] = None) -> bytes:
        """Makes a request and waits for its answer. Records that it sends are thrown away."""
        call = self.request(service, body, timeout=timeout)
        call.drain()
        return call.answer()

    def request(
        self,
        service: Union[int, str],
        body: bytes = b"",
        *,
        timeout: Optional[float] = None,
        upload: bool = False,
    ) -> "Call":
        """Makes a request for a service, by its number or its name. Others may run at the same time.

        The server ends it after `timeout` seconds with DEADLINE_EXCEEDED. With `upload`, the body goes on:
        `Call.send`, then `Call.finish`.
        """
        if self._end:
            raise self._end
        options = (
            protobuf.field(1, max(1, int(timeout * 1e6)) if timeout is not None else 0)
            + protobuf.field(2, service if isinstance(service, str) else "")
            + protobuf.field(3, int(upload))
        )
        if options and not self.minor:
            raise Failed(Code.UNSUPPORTED_OPERATION, "the server speaks protocol version 1.0")
        if len(body) > self.frame_bytes_max:
            raise Failed(Code.RESOURCE_LIMIT_REACHED, "the request is too long")
        if len(self._calls) >= min(self.requests_max, 1 << 16):
            raise Failed(Code.RESOURCE_LIMIT_REACHED, "the maximum number of running requests is reached")
        while self._next_slot in self._calls:
            self._next_slot = (self._next_slot + 1) % (1 << 16)
        slot = self._next_slot
        self._next_slot = (slot + 1) % (1 << 16)
        call = Call(self, slot, self._window if upload else None)
        self._calls[slot] = call
        if options:
            self._send(OPTIONS, slot, 0, options)
        self._send(REQUEST, slot, 0 if isinstance(service, str) else service, body)
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

    def _send(self, kind: int, slot: int, word: int = 0, payload: bytes = b"", channel: int = 0) -> None:
        if self._end:
            return
        rest = memoryview(HEAD.pack(len(payload), kind, channel, slot, word) + payload)
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
        """Waits for the transport: what happened, or nothing after too long."""
        if isinstance(self._stream, (SharedMemoryStream, TlsStream)):
            return self._stream.wait(events, self.timeout)
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
        length, kind, channel, slot, word = HEAD.unpack_from(self._received)
        if length > max(self.frame_bytes_max, 4096):
            raise self._over(Broken("a frame is longer than it may be"))
        while len(self._received) < HEAD.size + length:
            self._receive()
        payload = bytes(self._received[HEAD.size : HEAD.size + length])
        del self._received[: HEAD.size + length]
        try:
            self._take(kind, channel, slot, word, payload)
        except Broken as broken:
            raise self._over(broken)

    def _take(self, kind: int, channel: int, slot: int, word: int, payload: bytes) -> None:
        if kind == WELCOME:
            welcome = protobuf.read(payload)
            self.session = protobuf.number(welcome, 3)
            self.frame_bytes_max = protobuf.number(welcome, 4)
            self.requests_max = protobuf.number(welcome, 5)
            self.minor = min(protobuf.number(welcome, 2), 1)
            self._window = protobuf.number(welcome, 6)
            self._drains_at_end = bool(protobuf.number(welcome, 17))
            self.part_bytes_max = max(0, min(self._window - HEAD.size, self.frame_bytes_max))
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
        elif kind == PING:
            self._send(PONG, 0, word)
        elif kind in (DATA_CREDIT, DATA_STOP) and slot not in self._calls:
            pass  # It crossed our end of the body.
        else:
            call = self._calls.get(slot)
            if call is None:
                raise Broken(f"frame {kind} for slot {slot}, where no request runs")
            call._take(kind, channel, word, payload)


class Call:
    """A request that was made: the rest of its body, its channels' records, and its one answer."""

    def __init__(self, client: Client, slot: int, credit: Optional[int] = None) -> None:
        self._client = client
        self._slot = slot
        self._answer: Union[bytes, Failed, None] = None
        self._records: Deque[Tuple[int, bytes]] = collections.deque()
        self._ended_channels: Set[int] = set()
        self._credit = credit
        self._acquired = self._released = self._drained = self._unwanted = False

    def answer(self) -> bytes:
        """Waits for the one answer; an error is raised as Failed."""
        while self._answer is None:
            self._client._read()
        if isinstance(self._answer, Failed):
            raise self._answer
        return self._answer

    def __iter__(self) -> Iterator[bytes]:
        """The records of the first channel, as they come; none if there is no channel."""
        for channel, record in self.records():
            if channel == 0:
                yield record

    def records(self) -> Iterator[Tuple[int, bytes]]:
        """The records of all channels with the numbers of these, as they come."""
        while True:
            if self._records:
                channel, record = self._records.popleft()
                # Room for as much again.
                if not self._released and channel not in self._ended_channels:
                    self._client._send(CREDIT, self._slot, len(record) + HEAD.size, channel=channel)
                yield channel, record
            elif self._released or self._drained or (self._answer is not None and not self._acquired):
                self._finish()
                return
            else:
                self._client._read()

    def send(self, part: bytes) -> bool:
        """Sends one more part of the body, when the service has room for it. False: it wants no more."""
        if len(part) > self._client.part_bytes_max:
            raise Failed(Code.RESOURCE_LIMIT_REACHED, "the part is too long")
        while self._credit is not None and self._credit < len(part) + HEAD.size:
            self._client._read()
        if self._credit is None:
            return False
        self._credit -= len(part) + HEAD.size
        self._client._send(DATA, self._slot, 0, part)
        return True

    def finish(self) -> None:
        """The body is complete."""
        if self._credit is not None:
            self._credit = None
            self._client._send(DATA_END, self._slot)
            self._vacate()

    def cancel(self) -> None:
        """Asks for the request to be cancelled. Its answer still comes."""
        if self._answer is None:
            self._client._send(CANCEL, self._slot)
            self.finish()

    def drain(self) -> None:
        """No more records are wanted; the answer still is."""
        self._unwanted = True
        self._finish()

    def _finish(self) -> None:
        if self._acquired and not self._drained:
            self._drained = True
            self._records.clear()
            # A server that knows what there is room for needs no word about the end.
            if not (self._released and self._client._drains_at_end):
                self._client._send(DRAINED, self._slot)
            self._vacate()

    def _vacate(self) -> None:
        """The slot is free when the answer has come and the channel, if there was one, is drained."""
        if self._answer is not None and (self._drained or not self._acquired):
            self._client._calls.pop(self._slot, None)

    def _take(self, kind: int, channel: int, word: int, payload: bytes) -> None:
        if kind == RESULT:
            self._answer = payload
            self.finish()
            self._vacate()
        elif kind == ERROR:
            failure = protobuf.read(payload)
            self._answer = Failed(Code.of(protobuf.number(failure, 1)), protobuf.text(failure, 2))
            self.finish()
            self._vacate()
        elif kind == DATA_CREDIT:
            if self._credit is not None:
                self._credit += word
        elif kind == DATA_STOP:
            self.finish()
        elif kind == ACQUIRED:
            self._acquired = True
            if self._unwanted:
                self._finish()
        elif kind == RECORD:
            if not self._drained:
                self._records.append((channel, payload))
        elif kind == RELEASED:
            self._ended_channels.add(channel)
            self._released |= channel == 0
        else:
            raise Broken(f"a frame of kind {kind}")
