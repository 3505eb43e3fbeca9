"""What the kernel says about processes: CPU time, memory. Reads /proc and nothing else."""
import os

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def _processes():
    """Every process as (pid, parent, ticks of CPU), reaped children included in the ticks."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                line = file.read()
        except OSError:
            continue  # It has ended meanwhile.
        # The name in brackets may hold anything; what follows the last bracket is regular.
        fields = line[line.rindex(")") + 2:].split()
        yield int(name), int(fields[1]), sum(int(field) for field in fields[11:15])


def family(roots):
    """These processes and all their living descendants, with their ticks."""
    ticks, children = {}, {}
    for pid, parent, used in _processes():
        ticks[pid] = used
        children.setdefault(parent, []).append(pid)
    found, todo = {}, list(roots)
    while todo:
        pid = todo.pop()
        if pid in ticks and pid not in found:
            found[pid] = ticks[pid]
            todo += children.get(pid, [])
    return found


def cpu_seconds(roots):
    """User and system time of processes and their descendants."""
    return sum(family(roots).values()) / TICKS_PER_SECOND


def memory_bytes(roots):
    """Proportional share of memory (PSS) of processes and their descendants."""
    total = 0
    for pid in family(roots):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:
            pass
    return total * 1024
