"""A session through shared memory (docs/protocol.md, "Shared memory"), as far as `Client` needs a socket.

Words of the memory are read and written as whole words by ctypes. Python has no fence of its own: taking a lock is one on
the machines that matter, and no sleep lasts longer than `LOOK_AGAIN`, so that a wakeup that were lost all the same would
cost that long and nothing else.
"""

import ctypes
import mmap
import os
import select
import socket
import struct
import threading
import time
from typing import List, Optional

from ._errors import Code, Ended

MAGIC = b"SEKI-IPC"
REPLY = struct.Struct("<8sHHIIIQ")  # magic, version, zero, code, bytes up, bytes down, zero
PAGE = 4096
LOOK_AGAIN = 0.1
"""Seconds."""


class _Ring:
    """One direction: the positions, and the bytes behind them."""

    def __init__(self, memory: mmap.mmap, words_at: int, data_at: int, size: int) -> None:
        def word(offset: int) -> ctypes.c_uint64:
            return ctypes.c_uint64.from_buffer(memory, words_at + offset)

        self.tail, self.ended, self.head = word(0), word(8), word(128)
        self.reader_waits, self.writer_waits = word(256), word(384)
        self.data = memoryview(memory)[data_at : data_at + size]
        self.size = size

    def filled(self) -> int:
        count = (self.tail.value - self.head.value) % (1 << 64)
        if count > self.size:
            raise OSError("the shared memory has impossible content")
        return count

    def put(self, part: memoryview) -> None:
        at = self.tail.value % self.size
        first = min(len(part), self.size - at)
        self.data[at : at + first] = part[:first]
        self.data[: len(part) - first] = part[first:]
        self.tail.value = (self.tail.value + len(part)) % (1 << 64)

    def take(self, count: int) -> bytes:
        at = self.head.value % self.size
        first = min(count, self.size - at)
        part = bytes(self.data[at : at + first]) + bytes(self.data[: count - first])
        self.head.value = (self.head.value + count) % (1 << 64)
        return part


class SharedMemoryStream:
    """The client's end of a session."""

    def __init__(self, stream: socket.socket) -> None:
        self._timeout = stream.gettimeout()
        self._socket = stream
        self._fence_lock = threading.Lock()
        self._gone = False
        self._files: List[int] = []
        try:
            self._open(stream)
        except BaseException:
            self.close()
            raise

    def _open(self, stream: socket.socket) -> None:
        try:
            stream.sendall(MAGIC + struct.pack("<H6x", 1))
        except BrokenPipeError:
            pass  # A server that refuses us need not have waited for that; its reply says why.
        reply = b""
        while len(reply) < REPLY.size:
            part, files, _flags, _address = socket.recv_fds(stream, REPLY.size - len(reply), 3)
            self._files += files
            if not part:
                raise ConnectionError("the server does not share memory with us")
            reply += part
        magic, version, _zero, code, up, down, _rest = REPLY.unpack(reply)
        if magic != MAGIC:
            raise ConnectionError("not a server that shares memory")
        if code:
            raise Ended(Code.of(code), "the server does not share memory with us")
        if version != 1 or len(self._files) != 3:
            raise ConnectionError("the server shares memory in another version")
        sizes = [size for size in (up, down) if size & (size - 1) or not PAGE <= size <= 1 << 28]
        if sizes:
            raise ConnectionError("rings of impossible sizes")
        memory, self._server_wakeup, self._wakeup = self._files
        self._memory = mmap.mmap(memory, PAGE + up + down, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._out = _Ring(self._memory, 0, PAGE, up)
        self._in = _Ring(self._memory, 1024, PAGE + up, down)
        os.set_blocking(self._wakeup, False)

    def gettimeout(self) -> Optional[float]:
        return self._timeout

    def setblocking(self, _blocking: bool) -> None:
        """It never blocks but in `wait`."""

    def send(self, part: memoryview) -> int:
        if self._gone:
            raise BrokenPipeError("the server has gone")
        count = min(len(part), self._out.size - self._out.filled())
        if not count:
            raise BlockingIOError
        self._out.put(part[:count])
        self._fence()
        if self._out.reader_waits.value:
            self._out.reader_waits.value = 0
            self._wake()
        return count

    def recv(self, most: int) -> bytes:
        count = min(most, self._in.filled())
        if not count:
            if self._in.ended.value or self._gone:
                return b""
            raise BlockingIOError
        part = self._in.take(count)
        if self._in.size - self._in.filled() >= self._in.size // 4:
            self._fence()
            if self._in.writer_waits.value:
                self._in.writer_waits.value = 0
                self._wake()
        return part

    def wait(self, events: int, timeout: Optional[float]) -> int:
        """Waits until there is something to read, or room where that is wanted; nothing after too long."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            self._in.reader_waits.value = 1
            if events & select.POLLOUT:
                self._out.writer_waits.value = 1
            self._fence()
            ready = 0
            if self._in.filled() or self._in.ended.value or self._gone:
                ready |= select.POLLIN
            if events & select.POLLOUT and self._out.filled() < self._out.size:
                ready |= select.POLLOUT
            left = None if until is None else until - time.monotonic()
            if ready or (left is not None and left <= 0):
                self._in.reader_waits.value = self._out.writer_waits.value = 0
                return ready
            self._sleep(LOOK_AGAIN if left is None else min(left, LOOK_AGAIN))

    def _sleep(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        for file, _events in poll.poll(seconds * 1000):
            # A byte on the socket, its end, and the end of the pipe are the end of the session.
            self._gone |= file != self._wakeup or not os.read(self._wakeup, 64)

    def _wake(self) -> None:
        try:
            os.write(self._server_wakeup, struct.pack("<Q", 1))
        except OSError:
            pass  # It is awake, or gone.

    def _fence(self) -> None:
        with self._fence_lock:
            pass

    def close(self) -> None:
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._files = []
        self._gone = True
