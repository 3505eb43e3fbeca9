"""TLS around a connected socket, with the standard library's `ssl`, and the options of a "tls://" address."""

import os
import select
import socket
import ssl
import time
from typing import Dict, Optional, Tuple, Union
from urllib.parse import unquote_to_bytes

OPTIONS = ("ca", "cert", "key", "name")
# So much is encrypted in one go: no more waits here to leave.
SEND_BYTES = 1 << 16


def parse(address: str) -> Tuple[str, int, Dict[str, str]]:
    """Host, port and options of "tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME"."""
    wrong = ValueError(f"{address} is no address: tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE&name=NAME")
    at, _, query = address[len("tls://") :].partition("?")
    host, colon, port = at.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise wrong
    options: Dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        key, _, value = pair.partition("=")
        if key not in OPTIONS or key in options or not value:
            raise wrong
        options[key] = os.fsdecode(unquote_to_bytes(value))
    if "key" in options and "cert" not in options:
        raise wrong
    return host.strip("[]"), int(port), options


def client_context(options: Dict[str, str]) -> ssl.SSLContext:
    """What the options say: the authorities (those of the system, if none is named) and the client's certificate."""
    context = ssl.create_default_context(cafile=options.get("ca"))
    if "cert" in options:
        context.load_cert_chain(options["cert"], options.get("key"))
    return context


class TlsStream:
    """A connection whose handshake is done. It has what the session uses of a socket, and never blocks but in `wait`."""

    def __init__(self, stream: socket.socket, context: ssl.SSLContext, name: str) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._unsent = b""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    stream.sendall(self._outgoing.read())
                    self._feed(stream.recv(1 << 16))
            stream.sendall(self._outgoing.read())
        except ssl.SSLError:
            # The server is told why.
            self._unsent = self._outgoing.read()
            try:
                self._flush()
            except OSError:
                pass
            raise

    def gettimeout(self) -> Optional[float]:
        return self._stream.gettimeout()

    def setblocking(self, flag: bool) -> None:
        self._stream.setblocking(flag)

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        self._stream.close()

    def send(self, data: Union[bytes, memoryview]) -> int:
        """Encrypts some of it. What did not leave leaves before the next, or while the session waits."""
        self._flush()
        if self._unsent:
            raise BlockingIOError
        count = self._tls.write(data[:SEND_BYTES])
        self._unsent = self._outgoing.read()
        self._flush()
        return count

    def recv(self, size: int) -> bytes:
        while True:
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._unsent += self._outgoing.read()
                self._flush()
                self._feed(self._stream.recv(1 << 16))
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""  # The protocol has a last word of its own.

    def wait(self, events: int, timeout: Optional[float]) -> int:
        """Waits for the socket: what happened, or nothing after too long."""
        if events & select.POLLIN and self._tls.pending():
            return select.POLLIN
        by = None if timeout is None else time.monotonic() + timeout
        while True:
            poll = select.poll()
            poll.register(self._stream, events | (select.POLLOUT if self._unsent else 0))
            left = None if by is None else max(0.0, by - time.monotonic())
            ready = poll.poll(None if left is None else left * 1000)
            if not ready:
                return 0
            happened = ready[0][1]
            if happened & select.POLLOUT:
                self._flush()
            if happened & (events | ~select.POLLOUT):
                return happened

    def _feed(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _flush(self) -> None:
        """Sends what waits, as far as that goes at once."""
        while self._unsent:
            try:
                self._unsent = self._unsent[self._stream.send(self._unsent) :]
            except BlockingIOError:
                return
