"""Load on a running server, and what it cost: `wrk` for plain requests, our own generator (native/load.c) for
many connections and fixed rates, `curl` for whole files. All run where this process is pinned to."""
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


def wrk(server, path, seconds, connections=64, options=(), may_fail=False):
    """Requests as fast as they are answered."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *options,
               f"http://127.0.0.1:{server.port}{path}"]
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


def curl(server, path, seconds, options=(), good=("200",)):
    """One whole request after another by curl, at least one."""
    url = f"http://127.0.0.1:{server.port}{path}"
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
