"""Against servers that are slow, cut short, silent, full or broken: python3 tests/test_wire.py"""

import os
import socket
import struct
import sys
import threading
import unittest
from typing import Callable

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import sekisho  # noqa: E402
from sekisho import _protobuf as protobuf  # noqa: E402

HEAD = struct.Struct("<IBBHI")
WELCOME, BYE, REQUEST, RESULT = 2, 3, 16, 17
ACQUIRED, RECORD, RELEASED = 32, 33, 34


def frame(kind: int, slot: int = 0, payload: bytes = b"") -> bytes:
    return HEAD.pack(len(payload), kind, 0, slot, 0) + payload


GREETING = frame(
    WELCOME, 0, protobuf.field(1, 1) + protobuf.field(3, 7) + protobuf.field(4, 1 << 20) + protobuf.field(5, 64)
)


class Peer:
    """The server's end of a connection."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream

    def say(self, *parts: bytes) -> None:
        for part in parts:
            self.stream.sendall(part)

    def hear(self) -> int:
        """Takes a frame, and says of which kind it was."""
        head = self._exactly(HEAD.size)
        length, kind, _flags, _slot, _word = HEAD.unpack(head)
        self._exactly(length)
        return int(kind)

    def _exactly(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            part = self.stream.recv(count - len(taken))
            if not part:
                raise EOFError
            taken += part
        return taken


class Wire(unittest.TestCase):
    def client(self, serve: Callable[[Peer], None], timeout: float = 20) -> sekisho.Client:
        """A client of a server that has welcomed it and does this afterwards."""
        near, far = socket.socketpair()
        near.settimeout(timeout)
        peer = Peer(far)

        def run() -> None:
            peer.hear()
            peer.say(GREETING)
            try:
                serve(peer)
            except (EOFError, OSError):
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(far.close)
        self.addCleanup(thread.join, 20)
        client = sekisho.Client(near, "wire")
        self.addCleanup(client.close)
        return client

    def test_a_frame_may_come_byte_by_byte(self) -> None:
        def serve(peer: Peer) -> None:
            peer.hear()
            for byte in frame(RESULT, 0, b"answer"):
                peer.say(bytes([byte]))
            peer.hear()

        self.assertEqual(self.client(serve).call(1000), b"answer")

    def test_after_a_wait_that_was_too_long_the_same_can_be_waited_for(self) -> None:
        go_on = threading.Event()

        def serve(peer: Peer) -> None:
            peer.hear()
            answer = frame(RESULT, 0, b"late")
            peer.say(answer[:5])
            go_on.wait(20)
            peer.say(answer[5:])
            peer.hear()

        client = self.client(serve, timeout=0.05)
        call = client.request(1000)
        for _ in range(2):
            with self.assertRaises(TimeoutError):
                call.answer()
        go_on.set()
        client.timeout = 20
        self.assertEqual(call.answer(), b"late", "what had come before is not lost")

    def test_a_server_that_cannot_get_rid_of_its_answers_is_read(self) -> None:
        large = b"x" * 500_000

        def serve(peer: Peer) -> None:
            # As the real one: an answer leaves before the next request is taken.
            for slot in range(20):
                peer.hear()
                peer.say(frame(RESULT, slot, large))
            peer.hear()

        client = self.client(serve)
        calls = [client.request(1000, large) for _ in range(20)]
        for call in calls:
            self.assertEqual(len(call.answer()), len(large))

    def test_a_server_that_takes_nothing_is_given_up(self) -> None:
        over = threading.Event()
        client = self.client(lambda _: over.wait(20) and None, timeout=0.05)
        with self.assertRaises(sekisho.Lost):
            for _ in range(60):
                client.request(1000, b"x" * 1_000_000)
        over.set()

    def test_a_server_that_is_lost_is_not_one_that_ended_as_asked(self) -> None:
        client = self.client(lambda peer: peer.stream.close())
        with self.assertRaises(sekisho.Lost):
            client.call(1000)
        for again in (lambda: client.call(1000), lambda: client.extend(1)):
            with self.assertRaises(sekisho.Ended):
                again()

        def goes(peer: Peer) -> None:
            peer.hear()
            peer.stream.close()

        with self.assertRaises(sekisho.Lost):
            self.client(goes).shut_down()
        with self.assertRaises(sekisho.Lost):
            with self.client(goes) as client:
                pass
        self.assertEqual(client._stream.fileno(), -1, "the connection is closed all the same")

    def test_what_is_said_after_the_end_is_void(self) -> None:
        client = self.client(lambda peer: peer.hear() and None)
        call = client.request(1000)
        client.close()
        call.cancel()
        call.drain()
        client.close()
        with self.assertRaises(sekisho.Ended):
            call.answer()

    def test_nonsense_is_the_end(self) -> None:
        for nonsense in (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"SEKI-IPC\x01\0\0\0\x0d\0\0\0" + bytes(16),
            frame(RESULT, 5, b"for nobody"),
            frame(99),
            frame(BYE, 0, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
            HEAD.pack(0xFFFF_FFFF, RESULT, 0, 0, 0),
        ):
            def serve(peer: Peer, nonsense: bytes = nonsense) -> None:
                peer.hear()
                peer.say(nonsense)
                peer.hear()

            client = self.client(serve)
            with self.assertRaises(sekisho.Broken):
                client.call(1000)
            with self.assertRaises(sekisho.Broken, msg="and it stays over"):
                client.call(1000)

    def test_another_version_is_named(self) -> None:
        bye = protobuf.field(1, 3) + protobuf.field(2, "not this") + protobuf.field(3, 2) + protobuf.field(4, 7)
        client = self.client(lambda peer: peer.say(frame(BYE, 0, bye)))
        with self.assertRaises(sekisho.Ended) as ended:
            client.call(1000)
        self.assertEqual(str(ended.exception), "UNSUPPORTED_OPERATION: not this; version 2.7 is")

    def test_records_come_before_and_after_the_answer(self) -> None:
        def serve(peer: Peer) -> None:
            peer.hear()
            records = (frame(RECORD, 0, b"%d" % number) for number in range(3))
            peer.say(frame(ACQUIRED), *records, frame(RELEASED), frame(RESULT, 0, b"done"))
            while peer.hear() != 36:
                pass

        call = self.client(serve).request(1000)
        self.assertEqual(call.answer(), b"done")
        self.assertEqual(list(call), [b"0", b"1", b"2"])
        self.assertEqual(list(call), [])


if __name__ == "__main__":
    unittest.main()
