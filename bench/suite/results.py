"""What was measured, as it is kept in a JSON file, and the numbers that tables and charts are made of.

    {"about": {...}, "scenarios": {NAME: [{"server", "round", "point", "values": {...}} or {..., "failed"}]}}
"""
import dataclasses
import datetime
import json
import os
import platform
import statistics

REFERENCE = "nginx"


def about(binary, servers, options):
    """Where, when and with what."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "congestion": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "scheduler": {os.SCHED_OTHER: "normal", os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}.get(
            os.sched_getscheduler(0), "other"),
        "load_before": os.getloadavg()[0],
        "binary_bytes": os.path.getsize(binary) if binary else None,
        "servers": {server.name: server.version() for server in servers},
        "remark": options.remark,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }


def _read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


@dataclasses.dataclass
class Results:
    """All rows, by scenario."""
    about: dict
    scenarios: dict

    @classmethod
    def load(cls, path):
        with open(path) as file:
            return cls(**json.load(file))

    def save(self, path):
        with open(path, "w") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)
            file.write("\n")

    def rows(self, scenario):
        return self.scenarios.get(scenario, [])

    def servers(self, scenario):
        """Who took part, in the order of the run."""
        return list(dict.fromkeys(row["server"] for row in self.rows(scenario)))

    def values(self, scenario, server, figure, point=None):
        """One number for each round."""
        return {
            row["round"]: row["values"][figure] for row in self.rows(scenario)
            if (row["server"], row["point"]) == (server, point) and figure in row.get("values", {})
        }

    def middle(self, scenario, server, figure, point=None):
        """The median of the rounds; None where there is none."""
        values = list(self.values(scenario, server, figure, point).values())
        return statistics.median(values) if values else None

    def ratio(self, scenario, server, figure, point=None, to=REFERENCE):
        """The median of the ratios of each round: what a noisy moment does to one it does to the other."""
        ours = self.values(scenario, server, figure, point)
        theirs = self.values(scenario, to, figure, point)
        ratios = [ours[key] / theirs[key] for key in ours if theirs.get(key)]
        return statistics.median(ratios) if ratios else None

    def errors(self, scenario, server):
        """Answers that were not right, over all rounds."""
        return sum(row.get("values", {}).get("errors", 0) for row in self.rows(scenario)
                   if row["server"] == server)

    def failures(self):
        """What could not be measured."""
        for name, rows in self.scenarios.items():
            for row in rows:
                if "failed" in row:
                    yield name, row["server"], row["point"], row["failed"]
