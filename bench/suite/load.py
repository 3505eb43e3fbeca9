"""Load on a running server, and what it cost: `wrk` for plain requests, our own generator (native/load.c) for
many connections and fixed rates, `h2load` for HTTP/2, `curl` for whole files. All run where this process is pinned to."""
import json
import re
import subprocess
import time

from .configs import vhost

CPU_SECONDS_MIN = 0.05
# wrk asks for one of the many servers after the other; the requests are made once, before.
VHOST_SCRIPT = """
local requests, at = {}, 0
function init()
    for number = 0, %d do
        local host = string.format("site-%%04d.example:%d", number)
        requests[number + 1] = wrk.format("GET", string.format("/part-%%d/small.html", number %% 10), { Host = host })
    end
end
function request()
    at = at %% #requests + 1
    return requests[at]
end
"""
assert vhost(7) == "site-0007.example"
# Requests like a browser's to a public site: no two heads alike, one in twenty for a page that is gone.
TRAFFIC_SCRIPT = r"""
local count = 0
local agents = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/604.1",
}
function request()
    count = count + 1
    local name = count % 20 == 0 and string.format("gone-%d", count) or string.format("page-%04d", count * 617 % 1000)
    return table.concat({
        "GET /pages/", name, ".html?v=", count, " HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: ", agents[count % 3 + 1],
        "\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Language: en-US,en;q=0.5\r\n",
        "Accept-Encoding: gzip, deflate, br\r\nReferer: http://www.example.org/pages/page-", count % 997,
        ".html\r\nCookie: theme=dark; session=", count * 7919, "-5f1b0c2a9d7e4f63\r\n\r\n"})
end
"""


def wrk(server, path, seconds, connections=64, options=(), may_fail=False, scheme="http"):
    """Requests as fast as they are answered."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *options,
               f"{scheme}://127.0.0.1:{server.port}{path}"]
    before = server.cpu_seconds()
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    used = server.cpu_seconds() - before
    found = read_wrk(run.stdout, may_fail)
    return {**found, **cost(used, found["count"])}


def read_wrk(text, may_fail=False):
    """wrk's report. An answer that is not a success is an error, except where it is what is asked for."""
    number = lambda pattern: float((re.search(pattern, text) or [0, "0"])[1])  # noqa: E731
    sockets = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    errors = sum(int(count) for count in sockets.groups()) if sockets else 0
    if not may_fail:
        errors += int(number(r"Non-2xx or 3xx responses: (\d+)"))
    latency = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    scale = {"us": 1, "ms": 1e3, "s": 1e6}
    if not re.search(r"requests in", text):
        raise RuntimeError(f"wrk: {text.strip()[-200:]}")
    return {
        "count": int(number(r"(\d+) requests in")),
        "rate": number(r"Requests/sec:\s+([\d.]+)"),
        "p99_us": float(latency[1]) * scale[latency[2]] if latency else 0.0,
        "errors": errors,
    }


def cost(cpu_seconds, count):
    """CPU of the server for one request. The kernel counts in hundredths of a second: of a few of them
    nothing can be said."""
    if cpu_seconds < CPU_SECONDS_MIN:
        raise RuntimeError(f"the server had only {cpu_seconds:.2f} s of CPU: too little to tell")
    return {"cpu_us": cpu_seconds * 1e6 / max(count, 1)}


def h2load(server, paths, seconds, connections, streams, site):
    """Requests over HTTP/2 and TLS, each path in turn."""
    urls = site.base / "urls.txt"
    urls.write_text("".join(f"https://127.0.0.1:{server.port}{path}\n" for path in paths))
    before = server.cpu_seconds()
    run = subprocess.run(["h2load", "-t1", f"-c{connections}", f"-m{streams}", "-D", str(seconds), "-i", str(urls)],
                         capture_output=True, text=True, timeout=seconds + 60)
    used = server.cpu_seconds() - before
    found = re.search(r"(\d+) succeeded, (\d+) failed", run.stdout)
    if not found or "Application protocol: h2\n" not in run.stdout:
        raise RuntimeError(f"h2load: {(run.stdout + run.stderr).strip()[-200:]}")
    count = int(found[1])
    return {"count": count, "rate": count / seconds, "errors": int(found[2]), **cost(used, count)}


def traffic_script(site):
    """A script for wrk: see `TRAFFIC_SCRIPT`."""
    path = site.base / "traffic.lua"
    path.write_text(TRAFFIC_SCRIPT)
    return str(path)


def vhost_script(site, count, port):
    """A script for wrk that asks for each of `count` servers in turn."""
    path = site.base / "vhosts.lua"
    path.write_text(VHOST_SCRIPT % (count - 1, port))
    return str(path)


class Generator:
    """native/load.c with its connections open; ended by `with`."""

    def __init__(self, site, server, path, connections, rate=0):
        self.server = server
        command = [site.programs["load"], str(server.port), path, str(connections), str(rate)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"load: {self.process.communicate()[1].strip()}")

    def measure(self, seconds):
        """Load for so long; what came of it."""
        before = self.server.cpu_seconds()
        self.process.stdin.write(f"go {seconds}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        used = self.server.cpu_seconds() - before
        if not line:
            raise RuntimeError(f"load: {self.process.communicate()[1].strip()}")
        found = json.loads(line)
        return {**found, "rate": found["count"] / found["seconds"], **cost(used, found["count"])}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()
        self.process.stderr.close()


def curl(server, path, seconds, options=(), good=("200",), scheme="http"):
    """One whole request after another by curl, at least one."""
    url = f"{scheme}://127.0.0.1:{server.port}{path}"
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *options]
    before, start, count = server.cpu_seconds(), time.monotonic(), 0
    while not count or time.monotonic() - start < seconds:
        run = subprocess.run([*command, url.replace("{}", str(count % 2))], capture_output=True,
                             text=True, timeout=120)
        if run.stdout not in good:
            raise RuntimeError(f"answered {run.stdout or run.stderr}")
        count += 1
    took = time.monotonic() - start
    return {"count": count, "rate": count / took, "errors": 0,
            **cost(server.cpu_seconds() - before, count)}
