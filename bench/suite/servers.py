"""The servers: how each is started, what it can do, and its end. Each gets workers pinned to the first CPUs."""
import dataclasses
import itertools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time

from . import configs, measure

_first_port, _ports = random.randrange(20_000), itertools.count()
LISTEN_PATIENCE_S = 30
STOP_PATIENCE_S = 5


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a configuration is written for."""
    base: pathlib.Path
    root: pathlib.Path
    port: int
    workers: int = 1
    vhosts: int = 0
    has_log: bool = False
    # A `backends.Certificate` for TLS, `backends.Backends` to proxy to.
    certificate: object = None
    backends: object = None


@dataclasses.dataclass(frozen=True)
class Kind:
    """A server that there is."""
    name: str
    program: str
    # What it is measured in; see the scenarios.
    abilities: frozenset
    config: object = None
    # The command line, from the program and the file of its configuration.
    command: object = None
    # The command line that only checks the configuration.
    check: object = None
    environment: object = None
    package: str = ""


STATIC = {"static", "growth"}
EDGE = {"traffic", "tls", "proxy"}
KINDS = [
    Kind("sekisho", "", frozenset(STATIC | EDGE | {"listing", "cgi", "upload", "idle", "vhosts", "workers", "php", "tunnel"}),
         configs.sekisho, lambda program, file: [program, "-c", file],
         lambda program, file: [program, "-t", "-q", "-c", file]),
    Kind("floor", "floor", frozenset({"floor"}), None, None),
    Kind("nginx", "nginx",
         frozenset(STATIC | EDGE | {"listing", "cgi", "upload", "idle", "vhosts", "workers", "php", "tunnel"}),
         configs.nginx, lambda program, file: [program, "-c", file, "-e", "/dev/null"],
         lambda program, file: [program, "-t", "-q", "-c", file, "-e", "/dev/null"],
         package="nginx-extras"),
    Kind("h2o", "h2o", frozenset(STATIC | EDGE | {"listing", "idle", "vhosts", "workers"}),
         configs.h2o, lambda program, file: [program, "-c", file],
         lambda program, file: [program, "-t", "-c", file], package="h2o"),
    Kind("lighttpd", "lighttpd",
         frozenset(STATIC | EDGE | {"listing", "cgi", "upload", "idle", "vhosts", "php"}),
         configs.lighttpd, lambda program, file: [program, "-D", "-f", file],
         lambda program, file: [program, "-tt", "-f", file],
         package="lighttpd lighttpd-mod-webdav lighttpd-mod-openssl"),
    Kind("apache", "apache2", frozenset({"static", "listing", "cgi", "upload"}),
         configs.apache, lambda program, file: [program, "-D", "FOREGROUND", "-f", file],
         package="apache2"),
    Kind("caddy", "caddy", frozenset({"static", "listing", "idle"}),
         configs.caddy,
         lambda program, file: [program, "run", "--config", file, "--adapter", "caddyfile"],
         environment=lambda base: {"HOME": base, "XDG_DATA_HOME": base, "XDG_CONFIG_HOME": base,
                                   "GOMAXPROCS": "1"},
         package="caddy"),
    Kind("haproxy", "haproxy", frozenset({"proxy", "tunnel"}), configs.haproxy,
         lambda program, file: [program, "-f", file], package="haproxy"),
]


def find(names, binary, site, say):
    """The servers that are asked for and installed; the others are left out with a word."""
    found = []
    for kind in KINDS:
        if names and kind.name not in names:
            continue
        if kind.name == "sekisho":
            program = str(binary)
        elif kind.name == "floor":
            program = site.programs["floor"]
        else:
            program = shutil.which(kind.program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if program:
            found.append(Installed(kind, program, site))
        else:
            say(f"{kind.name} is not installed (package {kind.package}): left out")
    unknown = set(names or []) - {kind.name for kind in KINDS}
    if unknown:
        raise SystemExit(f"no such server: {', '.join(sorted(unknown))}")
    return found


class Installed:
    """A server that can be started."""

    def __init__(self, kind, program, site):
        self.kind, self.program, self.site = kind, program, site
        self.name = kind.name

    def can(self, ability):
        return ability in self.kind.abilities

    def version(self):
        """What it says of itself."""
        option = {"caddy": "version", "h2o": "--version"}.get(self.name, "-v")
        if self.name == "floor":
            return ""
        run = subprocess.run([self.program, option], capture_output=True, text=True, timeout=20)
        lines = (run.stdout + run.stderr).strip().splitlines()
        return lines[0] if lines else ""

    def write_config(self, **choices):
        """Its configuration in a file; with the port that stands in it."""
        port = free_port()
        plan = Plan(self.site.base, self.site.root, port, **choices)
        path = self.site.base / f"{self.name}.conf"
        path.write_text(self.kind.config(plan))
        return str(path), port

    def start(self, workers=1, **choices):
        """Starts it; it serves when this returns."""
        cpus = ",".join(str(cpu) for cpu in range(workers))
        if self.name == "floor":
            port = free_port()
            return Running(self, [self.program, str(port)], port, cpus, [])
        path, port = self.write_config(workers=workers, **choices)
        helpers = [self._fcgiwrap()] if self.name == "nginx" and shutil.which("fcgiwrap") else []
        return Running(self, self.kind.command(self.program, path), port, cpus, helpers)

    def _fcgiwrap(self):
        path = self.site.base / "fcgiwrap.sock"
        return ["sh", "-c", f"rm -f {path}; umask 0; exec fcgiwrap -c 4 -s unix:{path}"]


class Running:
    """A server that serves; ended by `with`."""

    def __init__(self, server, command, port, cpus, helpers):
        self.name, self.port = server.name, port
        base = str(server.site.base)
        environment = server.kind.environment(base) if server.kind.environment else {}
        self.complaints = server.site.base / f"{server.name}.said"
        with open(self.complaints, "wb") as said:
            options = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said,
                       "env": {**os.environ, **environment}, "start_new_session": True}
            begin = lambda argv: subprocess.Popen(["taskset", "-c", cpus, *argv], **options)  # noqa: E731
            self.started = time.monotonic()
            self.processes = [begin(helper) for helper in helpers] + [begin(command)]
        try:
            self._wait()
        except Exception:
            self.stop()
            raise
        self.took = time.monotonic() - self.started

    def _wait(self):
        end = time.monotonic() + LISTEN_PATIENCE_S
        while time.monotonic() < end:
            if self.processes[-1].poll() is not None:
                raise RuntimeError(f"{self.name} ended: {self.complaints.read_text()[-300:].strip()}")
            if listens(self.port):
                return
            time.sleep(0.001)
        raise RuntimeError(f"{self.name} does not listen")

    def cpu_seconds(self):
        return measure.cpu_seconds(self._pids())

    def memory_bytes(self):
        return measure.memory_bytes(self._pids())

    def _pids(self):
        return [process.pid for process in self.processes]

    def stop(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        for process in self.processes:
            try:
                process.wait(STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def listens(port):
    """Whether a connection is taken there."""
    try:
        socket.create_connection(("127.0.0.1", port), 0.2).close()
        return True
    except OSError:
        return False


def free_port():
    """A port without a listener, below those that the kernel gives to outgoing connections; never the
    same twice."""
    while True:
        port = 12_000 + (_first_port + next(_ports)) % 20_000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
