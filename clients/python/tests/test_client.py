"""Against a running server: python3 tests/test_client.py ADDRESS

The server must allow three sessions at the most, serve /a.txt with "from a file", and a program that sleeps
as /cgi-bin/slow. The project's own tests start such a server.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import sekisho  # noqa: E402

ADDRESS = sys.argv.pop() if len(sys.argv) > 1 else os.environ.get("SEKISHO_ADDRESS", "")


class Sessions(unittest.TestCase):
    def connect(self, label: str = "python") -> sekisho.Client:
        client = sekisho.connect(ADDRESS, label, application="test_client.py", timeout=20)
        self.addCleanup(client.close)
        return client

    def test_a_call_is_answered(self) -> None:
        with self.connect() as client:
            self.assertGreater(client.session, 0)
            for body in (b"", b"hello", bytes(range(256)) * 2000):
                self.assertEqual(client.call(sekisho.ECHO, body), body)
            self.assertGreater(client.extend(600), 300)

    def test_many_requests_run_at_once(self) -> None:
        with self.connect() as client:
            calls = [client.request(sekisho.ECHO, b"%d" % n) for n in range(100)]
            for n in reversed(range(100)):
                self.assertEqual(calls[n].answer(), b"%d" % n)

    def test_an_http_answer_comes_through_a_channel(self) -> None:
        with self.connect() as client:
            head, body = sekisho.read_http(client.request(sekisho.HTTP, sekisho.http_request("/a.txt")))
            self.assertEqual((head.status, body), (200, b"from a file"))
            self.assertIn("content-length", [name.lower() for name, _ in head.fields])
            # The records are not taken: the answer comes all the same.
            client.call(sekisho.HTTP, sekisho.http_request("/a.txt"))
            self.assertEqual(client.call(sekisho.ECHO, b"on"), b"on")

    def test_a_cancelled_request_gets_its_one_answer(self) -> None:
        with self.connect() as client:
            call = client.request(sekisho.HTTP, sekisho.http_request("/cgi-bin/slow"))
            self.assertEqual(client.call(sekisho.ECHO, b"meanwhile"), b"meanwhile")
            call.cancel()
            with self.assertRaises(sekisho.Failed) as failed:
                call.answer()
            self.assertEqual(failed.exception.code, sekisho.Code.OPERATION_CANCELLED)

    def test_errors_have_codes_and_the_session_goes_on(self) -> None:
        with self.connect() as client:
            with self.assertRaises(sekisho.Failed) as failed:
                client.call(4711)
            self.assertEqual(failed.exception.code, sekisho.Code.SERVICE_NOT_FOUND)
            with self.assertRaises(sekisho.Failed) as failed:
                client.call(sekisho.CONTROL)
            self.assertEqual(failed.exception.code, sekisho.Code.PERMISSION_ERROR)
            self.assertEqual(client.call(sekisho.ECHO, b"on"), b"on")

    def test_a_body_goes_on_after_its_request(self) -> None:
        with self.connect() as client:
            self.assertEqual(client.minor, 1)
            call = client.request("echo", b"one ", upload=True)
            for part in (b"two ", b"", b"three"):
                self.assertTrue(call.send(part))
            call.finish()
            self.assertEqual(call.answer(), b"one two three")
            # More than a request may have is refused, and the session goes on.
            call = client.request("echo", upload=True)
            part = bytes(client.part_bytes_max)
            while call.send(part):
                pass
            with self.assertRaises(sekisho.Failed) as failed:
                call.answer()
            self.assertEqual(failed.exception.code, sekisho.Code.RESOURCE_LIMIT_REACHED)
            call = client.request("echo", b"half", upload=True)
            call.cancel()
            with self.assertRaises(sekisho.Failed) as failed:
                call.answer()
            self.assertEqual(failed.exception.code, sekisho.Code.OPERATION_CANCELLED)
            self.assertEqual(client.call("echo", b"on"), b"on")

    def test_a_request_ends_at_its_deadline(self) -> None:
        with self.connect() as client:
            call = client.request("http", sekisho.http_request("/cgi-bin/slow"), timeout=0.05)
            with self.assertRaises(sekisho.Failed) as failed:
                call.answer()
            self.assertEqual(failed.exception.code, sekisho.Code.DEADLINE_EXCEEDED)
            self.assertEqual(client.call(sekisho.ECHO, b"in time", timeout=20), b"in time")

    def test_a_name_that_nobody_has_is_an_error(self) -> None:
        with self.connect() as client:
            with self.assertRaises(sekisho.Failed) as failed:
                client.call("nobody")
            self.assertEqual(failed.exception.code, sekisho.Code.SERVICE_NOT_FOUND)

    def test_force_cancels_what_runs(self) -> None:
        client = self.connect()
        call = client.request(sekisho.HTTP, sekisho.http_request("/cgi-bin/slow"))
        client.shut_down(forceful=True)
        with self.assertRaises(sekisho.SekishoError):
            call.answer()
        with self.assertRaises(sekisho.Ended):
            client.call(sekisho.ECHO)

    def test_a_full_server_says_so(self) -> None:
        clients = [self.connect() for _ in range(3)]
        with self.assertRaises(sekisho.Ended) as ended:
            self.connect()
        self.assertEqual(ended.exception.code, sekisho.Code.RESOURCE_LIMIT_REACHED)
        for client in clients:
            client.shut_down()


if __name__ == "__main__":
    if not ADDRESS:
        sys.exit("usage: test_client.py ADDRESS")
    unittest.main()
