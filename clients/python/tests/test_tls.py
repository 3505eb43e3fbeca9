"""Against a running server with TLS: python3 tests/test_tls.py HOST:PORT=FOLDER

The folder has the authorities ours.pem (the server's) and theirs.pem, and certificates of clients with the subject
CN=backup by both. The token "0123456789abcdef-ci" is known. The project's own tests start such a server.
"""

import os
import ssl
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import sekisho  # noqa: E402
from sekisho._tls import parse  # noqa: E402

AT, _, FOLDER = (sys.argv.pop() if len(sys.argv) > 1 else "").partition("=")


def file(name: str) -> str:
    return os.path.join(FOLDER, name)


class Secured(unittest.TestCase):
    def connect(self, query: str = "", **more: object) -> sekisho.Client:
        address = f"tls://{AT}?{query.format(dir=FOLDER)}"
        client = sekisho.connect(address, "python", timeout=20, **more)  # type: ignore[arg-type]
        self.addCleanup(client.close)
        return client

    def test_the_right_authority_and_name(self) -> None:
        for query in ("ca={dir}/ours.pem", "ca={dir}/ours.pem&name=127.0.0.1"):
            with self.connect(query) as client:
                self.assertEqual(client.call(sekisho.ECHO, b"hello"), b"hello")

    def test_the_wrong_authority_or_name_is_refused(self) -> None:
        for query in ("", "ca={dir}/theirs.pem", "ca={dir}/ours.pem&name=localhost"):
            with self.assertRaises(ssl.SSLCertVerificationError):
                self.connect(query)
        with self.assertRaises(OSError):
            self.connect("ca={dir}/none.pem")

    def test_a_certificate_is_an_identity(self) -> None:
        with self.connect("ca={dir}/ours.pem&cert={dir}/ours-client.pem") as client:
            self.assertEqual(client.call(sekisho.ECHO, b"hello"), b"hello")
        with self.assertRaises(sekisho.Ended) as ended:
            self.connect("ca={dir}/ours.pem&cert={dir}/theirs-client.pem")
        self.assertEqual(ended.exception.code, sekisho.Code.AUTHENTICATION_ERROR)

    def test_a_context_of_ones_own(self) -> None:
        context = ssl.create_default_context(cafile=file("ours.pem"))
        context.load_cert_chain(file("ours-client.pem"))
        with self.connect(ssl_context=context) as client:
            self.assertEqual(client.call(sekisho.ECHO, b"hello"), b"hello")

    def test_a_token_passes_tls(self) -> None:
        with self.connect("ca={dir}/ours.pem", credential=b"0123456789abcdef-ci") as client:
            self.assertEqual(client.call(sekisho.ECHO, b"hello"), b"hello")
        with self.assertRaises(sekisho.Ended) as ended:
            self.connect("ca={dir}/ours.pem", credential=b"0123456789abcdef-no")
        self.assertEqual(ended.exception.code, sekisho.Code.AUTHENTICATION_ERROR)

    def test_much_in_both_directions_at_once(self) -> None:
        body = bytes(range(250)) * 4000
        with self.connect("ca={dir}/ours.pem") as client:
            calls = [client.request(sekisho.ECHO, body) for _ in range(6)]
            for call in calls:
                self.assertEqual(call.answer(), body)

    def test_a_session_that_is_over_says_so(self) -> None:
        client = self.connect("ca={dir}/ours.pem")
        client.shut_down()
        with self.assertRaises(sekisho.Ended):
            client.call(sekisho.ECHO)


class Addresses(unittest.TestCase):
    def test_options_stand_behind_the_question_mark(self) -> None:
        host, port, options = parse("tls://[::1]:7455?ca=/a%20b.pem&cert=c&key=d&name=e.f")
        self.assertEqual((host, port), ("::1", 7455))
        self.assertEqual(options, {"ca": "/a b.pem", "cert": "c", "key": "d", "name": "e.f"})
        for wrong in ("tls://a", "tls://:1", "tls://a:x", "tls://a:1?verify=off", "tls://a:1?ca=", "tls://a:1?key=k"):
            with self.assertRaises(ValueError):
                parse(wrong)


if __name__ == "__main__":
    if not FOLDER:
        sys.exit("usage: test_tls.py HOST:PORT=FOLDER")
    unittest.main()
