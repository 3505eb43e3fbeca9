"""What stands beside the servers of the scenarios with TLS and proxying: a certificate, two backends, php-fpm. They run
where the load runs."""
import contextlib
import dataclasses
import pathlib
import shutil
import subprocess
import time

from . import servers

PATIENCE_S = 10


@dataclasses.dataclass(frozen=True)
class Certificate:
    """Files of a self-signed certificate (P-256)."""
    chain: pathlib.Path
    key: pathlib.Path
    both: pathlib.Path


@dataclasses.dataclass(frozen=True)
class Backends:
    """Ports of the backends with 1 KB, with 1 MB and with WebSockets, and the socket of php-fpm."""
    small: int
    big: int
    sockets: int
    php: pathlib.Path


def certificate(site):
    """Makes it once in a run."""
    made = Certificate(*(site.base / name for name in ["cert.pem", "key.pem", "both.pem"]))
    if not made.both.exists():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", str(made.key), "-out", str(made.chain), "-days", "30", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        made.key.chmod(0o644)
        made.both.write_text(made.chain.read_text() + made.key.read_text())
    return made


def php_fpm():
    """The program, if it is installed."""
    return shutil.which("php-fpm8.2") or shutil.which("php-fpm")


@contextlib.contextmanager
def running(site):
    """The backends while they run."""
    here = Backends(servers.free_port(), servers.free_port(), servers.free_port(), site.base / "php.sock")
    commands = [[site.programs["backend"], str(port), str(size)] for port, size in [
        (here.small, 1024), (here.big, 1 << 20), (here.sockets, "upgrade")]]
    if php_fpm():
        (site.root / "hello.php").write_text("<?php echo 'hello';")
        settings = site.base / "php-fpm.conf"
        settings.write_text(f"""[global]
error_log = {site.base}/php-fpm.log
daemonize = no
[www]
user = root
group = root
listen = {here.php}
listen.mode = 0666
pm = static
pm.max_children = 4
""")
        here.php.unlink(missing_ok=True)
        commands.append([php_fpm(), "-R", "-F", "-y", str(settings)])
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen(command, **quiet) for command in commands]
    try:
        _wait(here)
        yield here
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(PATIENCE_S)


def _wait(here):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        is_open = all(servers.listens(port) for port in (here.small, here.big, here.sockets))
        if is_open and (here.php.exists() or not php_fpm()):
            return
        time.sleep(0.01)
    raise RuntimeError("the backends do not listen")
