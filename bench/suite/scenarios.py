"""What is measured. A scenario is a function of a server that gives numbers; `points` are what it is measured
at, where it grows with something. Scenarios without points are measured once in a round."""
import dataclasses
import os
import socket
import subprocess
import time

from . import backends, load
from .site import SIZES, VHOSTS, Site

IDLE_CONNECTIONS = 10_000
# As many as fit into 20,000 descriptors.
TUNNELS = 9_000
RATE = 10_000
CONFIG_RUNS = 3


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One of them."""
    name: str
    title: str
    ability: str
    # measure(server, site, seconds, point) -> numbers
    measure: object
    # The figure that servers are compared by, and its unit.
    figure: str = "cpu_us"
    points: tuple = ()
    # Growth is measured in fewer rounds: the shape counts.
    rounds: int | None = None
    # Whether more is better.
    is_rate: bool = False
    # Whether the bare loop takes part.
    has_floor: bool = False


def requests(path, **options):
    """Plain requests for a path by wrk."""
    def measure(server, site, seconds, _point):
        with server.start() as running:
            return load.wrk(running, path, seconds, **options)
    return measure


def traffic(server, site, seconds, _point):
    """A thousand pages, no two heads alike, the access log on."""
    with server.start(has_log=True) as running:
        return load.wrk(running, "/", seconds, options=["-s", load.traffic_script(site)], may_fail=True)


def tls(path, **options):
    """Requests over HTTP/1.1 and TLS 1.3."""
    def measure(server, site, seconds, _point):
        with server.start(certificate=backends.certificate(site)) as running:
            return load.wrk(running, path, seconds, scheme="https", **options)
    return measure


def bulk(server, site, seconds, _point):
    with server.start(certificate=backends.certificate(site)) as running:
        return load.curl(running, Site.sized(SIZES["100 MB"]), seconds, ["-k", "--http1.1"], scheme="https")


def http2(paths, connections, streams, has_log=False):
    """Requests over HTTP/2 and TLS."""
    def measure(server, site, seconds, _point):
        with server.start(certificate=backends.certificate(site), has_log=has_log) as running:
            return load.h2load(running, paths, seconds, connections, streams, site)
    return measure


def proxied(path, connections):
    """Requests that go on to a backend over kept connections."""
    def measure(server, site, seconds, _point):
        with backends.running(site) as behind, server.start(backends=behind) as running:
            return load.wrk(running, path, seconds, connections=connections)
    return measure


def tunnels(server, site, _seconds, _point):
    """Memory of WebSockets through the proxy that wait. Each takes two descriptors of the proxy."""
    request = (b"GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
               b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    def open_one(port):
        connection = socket.create_connection(("127.0.0.1", port), 20)
        connection.sendall(request)
        head = b""
        while b"\r\n\r\n" not in head:
            some = connection.recv(4096)
            if not some:
                raise RuntimeError(f"closed after {head[:60]!r}")
            head += some
        if b" 101 " not in head:
            raise RuntimeError(f"answered {head[:60]!r}")
        return connection
    with backends.running(site) as behind, server.start(backends=behind) as running:
        with open_one(running.port):
            pass  # What is allocated once is no part of a tunnel.
        before = running.memory_bytes()
        opened = [open_one(running.port) for _ in range(TUNNELS)]
        time.sleep(1)
        grown = running.memory_bytes() - before
        cpu_before = running.cpu_seconds()
        time.sleep(2)
        used = running.cpu_seconds() - cpu_before
        for connection in opened:
            connection.close()
    return {"bytes_each": grown / TUNNELS, "cpu_percent": used / 2 * 100, "errors": 0}


PAGES_IN_TURN = [f"/pages/page-{number * 617 % 1000:04d}.html?v={number}" for number in range(5000)]


def large(server, _site, seconds, _point):
    with server.start() as running:
        return load.curl(running, Site.sized(SIZES["100 MB"]), seconds)


def put(server, site, seconds, _point):
    body = str(site.root) + Site.sized(SIZES["100 MB"])
    with server.start() as running:
        return load.curl(running, "/upload/up-{}.bin", seconds, ["-T", body], ("200", "201", "204"))


def cgi(server, site, seconds, _point):
    if server.name == "floor":
        # The bare loop of this scenario: programs started without a request.
        command = ["taskset", "-c", "0", site.programs["spawn"], f"{site.cgi}/hello.cgi", str(seconds)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        count, took = run.stdout.split()
        return {"count": int(count), "rate": int(count) / float(took), "errors": 0}
    with server.start() as running:
        return load.wrk(running, "/cgi-bin/hello.cgi", seconds, connections=8)


def idle(server, site, _seconds, _point):
    """Memory and CPU of connections that have made one request and wait."""
    with server.start() as running:
        with load.Generator(site, running, "/small.html", 1):
            pass  # What is allocated once is no part of a connection.
        before = running.memory_bytes()
        with load.Generator(site, running, "/small.html", IDLE_CONNECTIONS):
            time.sleep(1)
            grown = running.memory_bytes() - before
            cpu_before = running.cpu_seconds()
            time.sleep(2)
            used = running.cpu_seconds() - cpu_before
    return {"bytes_each": grown / IDLE_CONNECTIONS, "cpu_percent": used / 2 * 100, "errors": 0}


def latency(server, site, seconds, _point):
    """Requests that are due at a fixed rate; see native/load.c."""
    with server.start() as running:
        with load.Generator(site, running, "/small.html", 64, RATE) as generator:
            return generator.measure(seconds)


def connections(server, site, seconds, point):
    """So many connections, each of which asks again when it has its answer."""
    with server.start() as running:
        with load.Generator(site, running, "/small.html", point) as generator:
            return generator.measure(seconds)


def sizes(server, _site, seconds, point):
    size = SIZES[point]
    with server.start() as running:
        if size > 1 << 20:
            return load.curl(running, Site.sized(size), seconds)
        return load.wrk(running, Site.sized(size), seconds, connections=64 if size < 1 << 20 else 8)


def workers(server, site, seconds, point):
    """More workers on more CPUs; the load has what is left, or everything where nothing is."""
    everything = os.sched_getaffinity(0)
    count = os.cpu_count() or 1
    os.sched_setaffinity(0, set(range(point, count)) or set(range(count)))
    try:
        with server.start(workers=point) as running:
            return load.wrk(running, "/small.html", seconds, connections=64)
    finally:
        os.sched_setaffinity(0, everything)


def vhosts(server, site, seconds, point):
    """A thousand heads that differ, to one server or to as many servers."""
    with server.start(vhosts=point) as running:
        script = load.vhost_script(site, VHOSTS, running.port)
        return load.wrk(running, "/part-0/small.html", seconds, options=["-s", script])


def config(server, _site, _seconds, _point):
    """A configuration of a thousand servers with ten locations each: to check it, and until it serves."""
    path, _ = server.write_config(vhosts=VHOSTS)
    checks, starts, memory = [], [], 0
    for _ in range(CONFIG_RUNS):
        if server.kind.check:
            begun = time.monotonic()
            subprocess.run(server.kind.check(server.program, path), check=True, capture_output=True)
            checks.append(time.monotonic() - begun)
        with server.start(vhosts=VHOSTS) as running:
            starts.append(running.took)
            memory = running.memory_bytes()
    numbers = {"start_ms": min(starts) * 1e3, "memory_mb": memory / 1e6, "errors": 0}
    return {**numbers, "check_ms": min(checks) * 1e3} if checks else numbers


ALL = [
    Scenario("traffic", "1,000 pages, varied heads, access log", "traffic", traffic),
    Scenario("small", "small file (1 KiB), kept alive", "static", requests("/small.html"), has_floor=True),
    Scenario("index", "index of a folder", "static", requests("/")),
    Scenario("missing", "missing file (404)", "static", requests("/no-such-file", may_fail=True)),
    Scenario("close", "new connection for each request", "static",
             requests("/small.html", options=["-H", "Connection: close"])),
    Scenario("medium", "100 KiB file", "static", requests(Site.sized(SIZES["100 KB"]))),
    Scenario("large", "100 MB file", "static", large),
    Scenario("listing", "listing of 1,000 entries", "listing", requests("/listing/", connections=8)),
    Scenario("put", "PUT of 100 MB", "upload", put),
    Scenario("cgi", "CGI program", "cgi", cgi, figure="rate", is_rate=True, has_floor=True),
    Scenario("idle", "10,000 idle connections", "idle", idle, figure="bytes_each", rounds=1),
    Scenario("tls", "small file over TLS 1.3", "tls", tls("/small.html")),
    Scenario("handshake", "new TLS connection for each request", "tls",
             tls("/small.html", connections=16, options=["-H", "Connection: close"])),
    Scenario("bulk", "100 MB over TLS", "tls", bulk),
    Scenario("h2", "HTTP/2, 16 connections of 16 streams", "tls", http2(["/small.html"], 16, 16)),
    Scenario("h2many", "HTTP/2, 1 connection of 100 streams", "tls", http2(["/small.html"], 1, 100)),
    Scenario("h2traffic", "HTTP/2, 1,000 pages, access log", "tls", http2(PAGES_IN_TURN, 16, 16, has_log=True)),
    Scenario("proxy", "1 KB from a backend", "proxy", proxied("/x", 64)),
    Scenario("proxybig", "1 MB from a backend", "proxy", proxied("/big", 16)),
    Scenario("fcgi", "php-fpm over FastCGI", "php", proxied("/hello.php", 8)),
    Scenario("tunnels", f"{TUNNELS:,} idle WebSockets through the proxy", "tunnel", tunnels, figure="bytes_each", rounds=1),
    Scenario("latency", f"latency at {RATE:,} requests a second", "static", latency, figure="p99_us",
             has_floor=True),
    Scenario("connections", "open connections, all in use", "growth", connections,
             points=(1, 10, 100, 1000, 10_000), rounds=2, has_floor=True),
    Scenario("sizes", "size of the file", "growth", sizes, points=tuple(SIZES), rounds=1),
    Scenario("workers", "workers", "workers", workers, points=(1, 2), rounds=2),
    Scenario("vhosts", "servers with 10 locations each", "vhosts", vhosts, points=(1, VHOSTS), rounds=3),
    Scenario("config", "start with 1,000 servers of 10 locations", "vhosts", config, figure="start_ms",
             rounds=1),
]
BY_NAME = {scenario.name: scenario for scenario in ALL}
