"""The command line.

    bench/run --all                        everything, in about a quarter of an hour
    bench/run --quick                      everything once and briefly: to see that it works
    bench/run --scenarios small,cgi --servers sekisho,nginx
    bench/run --redraw                     tables and charts again from the last results
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from . import charts, report, results, runner, servers
from .scenarios import ALL, BY_NAME
from .site import Site

PROJECT = pathlib.Path(__file__).resolve().parents[2]
OUT = PROJECT / "docs" / "benchmarks"
CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
QUICK = {"rounds": 1, "seconds": 1}


def main():
    options = parse()
    out = pathlib.Path(options.out)
    if options.redraw:
        found = results.Results.load(out / "results.json")
        found.about["remark"] = options.remark or found.about.get("remark")
    else:
        missing = [tool for tool in ["wrk", "h2load", "openssl", "curl", "cc", "taskset"] if not shutil.which(tool)]
        if missing:
            print(f"needed and not installed: {', '.join(missing)}", file=sys.stderr)
            return 1
        found = measure(options)
    out.mkdir(parents=True, exist_ok=True)
    found.save(out / "results.json")
    report.write(found, out / "results.md")
    for path in charts.write(found, out):
        say(f"wrote {path}")
    failures = list(found.failures())
    for scenario, server, point, why in failures:
        print(f"{scenario}, {server}{f' at {point}' if point else ''}: {why}", file=sys.stderr)
    return 1 if any(server == "sekisho" for _, server, _, _ in failures) else 0


def parse():
    parser = argparse.ArgumentParser(
        prog="bench/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every scenario and server (the default)")
    parser.add_argument("--scenarios", help=f"some of: {', '.join(BY_NAME)}")
    parser.add_argument("--servers", help=f"some of: {', '.join(kind.name for kind in servers.KINDS)}")
    parser.add_argument("--rounds", type=int, help="turns of each server (3)")
    parser.add_argument("--seconds", type=int, help="length of one measurement (2)")
    parser.add_argument("--quick", action="store_true", help="one round of one second")
    parser.add_argument("--binary", type=pathlib.Path, help="a built server; without it, a release build is made")
    parser.add_argument("--out", default=OUT, help=f"where results go ({OUT.relative_to(PROJECT)})")
    parser.add_argument("--remark", help="what a reader of the results must know; stands above them")
    parser.add_argument("--redraw", action="store_true", help="only tables and charts, from results.json")
    options = parser.parse_args()
    for name, value in (QUICK if options.quick else {"rounds": 3, "seconds": 2}).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    names = options.scenarios.split(",") if options.scenarios else list(BY_NAME)
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    options.chosen = [scenario for scenario in ALL if scenario.name in names]
    return options


def measure(options):
    names = options.servers.split(",") if options.servers else None
    binary = options.binary or build()
    # Servers are on the first CPU, we and what we start on the last one.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    begun = time.monotonic()
    with cubic(), tempfile.TemporaryDirectory(prefix="sekisho-bench-") as base:
        os.chmod(base, 0o777)
        site = Site(base)
        found = servers.find(names, binary.resolve(), site, say)
        about = results.about(binary, found, options)
        measured = runner.run(options.chosen, found, site, options, about, say)
    measured.about["took_s"] = round(time.monotonic() - begun)
    say(f"measured in {measured.about['took_s']} s")
    return measured


@contextlib.contextmanager
def cubic():
    """BBR paces by timers even on loopback: every server gets cubic while this runs, where that is allowed."""
    before = CONGESTION.read_text()
    try:
        CONGESTION.write_text("cubic")
    except OSError as error:
        say(f"congestion control stays {before.strip()}: {error}")
    try:
        yield
    finally:
        if CONGESTION.read_text() != before:
            CONGESTION.write_text(before)


def build():
    """The server as it is shipped."""
    subprocess.run(["cargo", "build", "--release", "-p", "sekisho"], cwd=PROJECT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target"))
    return target / "release" / "sekisho"


def say(text):
    print(text, flush=True)
