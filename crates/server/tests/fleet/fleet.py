"""Three nodes in network namespaces of their own, HAProxy in front of them with the PROXY protocol, Redis, NATS and an S3 server:
load of downloads, uploads, CGI programs and HTTP/2 while every node is upgraded, Redis, NATS and the S3 server are restarted
and a node is killed. Then 10,000 clients meet a limit that the nodes share.

fleet.py BINARY FOLDER; runs in a network namespace of its own, as root. Prints what it saw; the exit status says whether it holds.
"""
import asyncio
import collections
import hashlib
import http.client
import os
import random
import socket
import subprocess
import sys
import threading
import time

BINARY, FOLDER = sys.argv[1], sys.argv[2]
HERE = os.path.dirname(os.path.abspath(__file__))
FRONT = "10.7.0.1"
NODES = {"a": "10.7.0.11", "b": "10.7.0.12", "c": "10.7.0.13"}
PATIENCE = 30
RATE, BURST = 500, 50
processes = {}


def path(*names):
    return os.path.join(FOLDER, *names)


def run(*command, check=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done


def start(name, *command):
    log = open(path(name + ".out"), "ab")
    processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return processes[name]


def until(what, condition, limit=PATIENCE):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {limit} s")
        time.sleep(0.05)


def listens(address, port):
    try:
        socket.create_connection((address, port), 1).close()
        return True
    except OSError:
        return False


def within(node, *command):
    """A command in the namespace of a node."""
    return ("nsenter", "-t", str(processes["net-" + node].pid), "-n", *command)


def make_network():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "bridge", "type", "bridge")
    run("ip", "addr", "add", FRONT + "/24", "dev", "bridge")
    run("ip", "link", "set", "bridge", "up")
    # The clients' addresses.
    run("ip", "route", "add", "local", "10.8.0.0/16", "dev", "lo")
    for node, address in NODES.items():
        holder = start("net-" + node, "unshare", "--net", "sleep", "3600")
        own = os.readlink("/proc/self/ns/net")
        until("a namespace", lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
        run("ip", "link", "add", "to-" + node, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", "to-" + node, "master", "bridge", "up")
        run(*within(node, "ip", "link", "set", "lo", "up"))
        run(*within(node, "ip", "addr", "add", address + "/24", "dev", "eth0"))
        run(*within(node, "ip", "link", "set", "eth0", "up"))
        run(*within(node, "ip", "route", "add", "10.8.0.0/16", "via", FRONT))


def start_redis():
    start("redis", "redis-server", "--bind", FRONT, "--port", "6379", "--save", "", "--protected-mode", "no")
    until("Redis", lambda: listens(FRONT, 6379))


def start_nats():
    start("nats", "nats-server", "-a", FRONT, "-p", "4222")
    until("NATS", lambda: listens(FRONT, 4222))


def start_objects():
    start("objects", sys.executable, os.path.join(HERE, "objects.py"), FRONT, "9000", path("objects.kept"))
    until("the S3 server", lambda: listens(FRONT, 9000))


def restart(name, again):
    """Ends a server and starts it again, under load."""
    processes[name].terminate()
    processes[name].wait(PATIENCE)
    time.sleep(0.5)
    again()


CONFIG = """
worker_processes 1; worker_shutdown_timeout 20s; user root; cgi_allow_root on;
pid {dir}/pid; error_log {dir}/error.log info;
cluster {{ name fleet; node {node}; nats nats://{front}; }}
events {{ }}
http {{
    access_log off;
    limit_req_zone all zone=all:1m rate={rate}r/s store=redis://{front}:6379/;
    storage objects {{ url s3://bucket/site/; endpoint http://{front}:9000; credentials {dir}/keys; timeout 5s; part_size 5m; }}
    server {{
        listen {address}:80 proxy_protocol; http2 on;
        set_real_ip_from {front}; real_ip_header proxy_protocol;
        root {root};
        location = /health {{ status health; }}
        location /objects/ {{ root storage:objects; dav_methods PUT; client_max_body_size 64m; }}
        location /cgi-bin/ {{ cgi on; }}
        location = /limited {{ limit_req zone=all burst={burst} nodelay; add_header X-Client $remote_addr; try_files /file0 =404; }}
    }}
}}
"""


def configure(node):
    os.makedirs(path(node), exist_ok=True)
    with open(path(node, "keys"), "w") as file:
        file.write("aws_access_key_id = fleet\naws_secret_access_key = fleet\n")
    text = CONFIG.format(dir=path(node), node=node, front=FRONT, rate=RATE, burst=BURST, address=NODES[node], root=path("root"))
    with open(path(node, "conf"), "w") as file:
        file.write(text)


def start_node(node):
    start(node, *within(node, BINARY, "-c", path(node, "conf")))
    until("node " + node, lambda: listens(NODES[node], 80))


def pid_of(node):
    try:
        return int(open(path(node, "pid")).read())
    except (OSError, ValueError):
        return 0


def ctl(*arguments, node="a", check=True):
    return run(*within(node, BINARY, "ctl", "-c", path(node, "conf"), *arguments), check=check)


def start_balancer():
    def servers(more):
        return "".join(f"  server {node} {address}:80 send-proxy-v2 check {more}\n" for node, address in NODES.items())

    common = """  balance roundrobin
  option httpchk
  http-check send meth GET uri /health ver HTTP/1.1 hdr Host fleet
  http-check expect status 200
  default-server check-send-proxy inter 200ms fall 1 rise 1
  option redispatch 1
  retries 5
  retry-on conn-failure empty-response response-timeout
"""
    with open(path("haproxy.cfg"), "w") as file:
        file.write(
            f"""global
  maxconn 4000
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
frontend clear
  bind {FRONT}:8080
  default_backend nodes
frontend h2
  bind {FRONT}:8081 proto h2
  default_backend nodes2
backend nodes
{common}{servers("")}backend nodes2
{common}{servers("proto h2 check-proto h1")}"""
        )
    start("haproxy", "haproxy", "-f", path("haproxy.cfg"), "-db")
    until("HAProxy", lambda: listens(FRONT, 8080) and listens(FRONT, 8081))


class Load:
    """Downloads, uploads and CGI programs from several threads. A request that is idempotent is tried again."""

    def __init__(self):
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []
        self.uploads = {}
        kinds = (self.download, self.upload, self.program, self.object)
        self.threads = [threading.Thread(target=self.work, args=(kind, number), daemon=True) for number, kind in enumerate(kinds)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE * 4)

    def take(self):
        """What happened since the last look: how many answers, and the failures."""
        with self.lock:
            seen, self.counts = self.counts, collections.Counter()
            failures, self.failures = self.failures, []
        return seen, failures

    def work(self, kind, seed):
        chance = random.Random(seed)
        while not self.is_over.is_set():
            kind(chance)

    def ask(self, method, target, body, is_right):
        """Asks until it is answered well; the first failure counts."""
        end, first = time.monotonic() + PATIENCE, None
        while True:
            try:
                connection = http.client.HTTPConnection(FRONT, 8080, timeout=PATIENCE)
                connection.request(method, target, body)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                if is_right(answer.status, content):
                    break
                first = first or f"{method} {target}: {answer.status}"
            except (OSError, http.client.HTTPException) as error:
                first = first or f"{method} {target}: {error!r}"
            if time.monotonic() > end:
                with self.lock:
                    self.failures.append(first + " (and never well)")
                return False
            time.sleep(0.1)
        with self.lock:
            self.counts["requests"] += 1
            if first:
                self.counts["again"] += 1
                self.failures.append(first)
        return True

    def download(self, chance):
        number = chance.randrange(4)
        want = FILES[number]
        self.ask("GET", f"/file{number}", None, lambda status, body: status == 200 and body == want)

    def program(self, chance):
        self.ask("GET", "/cgi-bin/hello", None, lambda status, body: status == 200 and body == b"hello from CGI\n")
        time.sleep(0.02)

    def upload(self, chance):
        name = f"up-{len(self.uploads)}-{chance.randrange(1 << 30)}"
        body = chance.randbytes(chance.choice([0, 100, 100_000, 6_000_000]))
        if self.ask("PUT", "/objects/" + name, body, lambda status, _: status in (201, 204)):
            self.uploads[name] = hashlib.sha256(body).hexdigest()
        time.sleep(0.05)

    def object(self, chance):
        names = list(self.uploads)
        if not names:
            return time.sleep(0.05)
        name = chance.choice(names)
        want = self.uploads[name]
        self.ask("GET", "/objects/" + name, None, lambda status, body: status == 200 and hashlib.sha256(body).hexdigest() == want)
        time.sleep(0.02)


FILES = [random.Random(size).randbytes(size) for size in (1, 1000, 100_000, 1_000_000)]


def make_files():
    os.makedirs(path("root", "cgi-bin"))
    for number, content in enumerate(FILES):
        with open(path("root", f"file{number}"), "wb") as file:
            file.write(content)
    with open(path("root", "cgi-bin", "hello"), "w") as file:
        file.write("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'; sleep 0.05; echo hello from CGI\n")
    os.chmod(path("root", "cgi-bin", "hello"), 0o755)


def over_http2():
    """h2load beside the load; how many of its requests failed."""
    return subprocess.Popen(
        ["h2load", "-c", "4", "-m", "4", "-n", "4000", "--rps", "150", f"http://{FRONT}:8081/file1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def http2_outcome(process):
    output = process.communicate(timeout=PATIENCE * 4)[0]
    line = next((line for line in output.splitlines() if line.startswith("requests:")), "no result")
    words = line.replace(",", "").split()
    total, failed = int(words[1]), int(words[words.index("failed") - 1])
    return total, failed


def all_ready():
    shown = ctl("nodes", check=False).stdout
    return shown.count(" ready ") == 3


problems = []


def phase(load, name, change, may_fail):
    """A change under load. `may_fail`: how many requests may have to be asked again."""
    load.take()
    http2 = over_http2()
    begun = time.monotonic()
    change()
    until("all nodes are ready", all_ready)
    total, failed = http2_outcome(http2)
    seen, failures = load.take()
    took = time.monotonic() - begun
    print(f"{name}: {seen['requests']} requests, {seen['again']} asked again; HTTP/2: {total}, {failed} failed; {took:.0f} s", flush=True)
    for text in failures[:5]:
        print("    ", text)
    if len(failures) > may_fail or failed > may_fail or any("never" in text for text in failures):
        problems.append(f"{name}: {len(failures)} and {failed} failures, {may_fail} allowed")


def kill_node():
    os.kill(pid_of("c"), 9)
    until("its end", lambda: not listens(NODES["c"], 80))
    time.sleep(2)
    shown = ctl("nodes", check=False).stdout
    if "c" not in shown or "silent" not in shown:
        problems.append(f"a killed node is not silent: {shown}")
    start_node("c")


async def limited_client(number, answers):
    source = f"10.8.{number // 250}.{number % 250 + 1}"
    try:
        reader, writer = await asyncio.open_connection(FRONT, 8080, local_addr=(source, 0))
        writer.write(b"GET /limited HTTP/1.1\r\nHost: fleet\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
        status = answer[9:12].decode()
        if status == "200" and f"X-Client: {source}\r\n".lower().encode() not in answer.lower():
            status = "another address"
    except OSError as error:
        status = repr(error)
    answers[status] += 1


async def limited():
    """10,000 clients, 1,000 requests a second: how many pass."""
    answers, tasks = collections.Counter(), []
    begun = time.monotonic()
    for number in range(10_000):
        late = begun + number / 1000 - time.monotonic()
        if late > 0:
            await asyncio.sleep(late)
        tasks.append(asyncio.ensure_future(limited_client(number, answers)))
    took = time.monotonic() - begun
    await asyncio.gather(*tasks)
    return answers, took


def main():
    make_files()
    make_network()
    start_redis()
    start_nats()
    start_objects()
    for node in NODES:
        configure(node)
        start_node(node)
    start_balancer()
    until("all nodes are ready", all_ready)

    load = Load()
    phase(load, "nothing", lambda: time.sleep(2), 0)
    phase(load, "every node is upgraded", lambda: ctl("--cluster", "upgrade"), 0)
    phase(load, "every node reads its configuration again", lambda: ctl("--cluster", "reload"), 0)
    phase(load, "Redis is restarted", lambda: restart("redis", start_redis), 0)
    phase(load, "NATS is restarted", lambda: restart("nats", start_nats), 0)
    # Uploads and objects that are not in a cache are asked for again, since they are idempotent.
    phase(load, "the S3 server is restarted", lambda: restart("objects", start_objects), 40)
    # What was in flight at that node: four clients, and what four connections of HTTP/2 had open.
    phase(load, "a node is killed", kill_node, 20)
    load.stop()

    restart("objects", start_objects)
    import pickle

    with open(path("objects.kept"), "rb") as file:
        stored = {key: hashlib.sha256(body).hexdigest() for key, body in pickle.load(file).items()}
    wanted = {"site/objects/" + name: digest for name, digest in load.uploads.items()}
    print(f"{len(wanted)} acknowledged uploads, {len(stored)} objects", flush=True)
    if stored != wanted:
        lost = [key for key in wanted if stored.get(key) != wanted[key]]
        more = [key for key in stored if key not in wanted]
        problems.append(f"objects differ from what was acknowledged: lost {lost[:5]}, more {more[:5]}")

    answers, took = asyncio.run(limited())
    allowed = RATE * took + BURST + 1
    ratio = answers["200"] / allowed
    print(f"10,000 clients in {took:.1f} s: {dict(answers)}; {allowed:.0f} were allowed: {ratio:.3f}", flush=True)
    if not 0.95 <= ratio <= 1.05:
        problems.append(f"the shared limit let {answers['200']} of {allowed:.0f} pass")
    if set(answers) - {"200", "503"}:
        problems.append(f"answers that were not expected: {dict(answers)}")

    for problem in problems:
        print("PROBLEM:", problem)
    return 1 if problems else 0


status = 1
try:
    status = main()
finally:
    if status:
        for node in NODES:
            print(f"--- node {node}:\n" + open(path(node, "error.log")).read()[-3000:])
    for node in NODES:
        if pid := pid_of(node):
            try:
                os.kill(pid, 9)
            except OSError:
                pass
    for process in processes.values():
        process.kill()
sys.exit(status)
