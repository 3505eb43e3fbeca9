"""Drives `sekisho ctl top` in a pseudo-terminal: terminal.py BINARY PID PEER

The session of PEER must be seen, is chosen and ended with keys; then the view is left, and the terminal must be
as it was.
"""

import os
import pty
import re
import select
import struct
import sys
import termios
import time

import fcntl

binary, pid, peer = sys.argv[1:]
ROWS, COLUMNS = 24, 150
# The terminal has its size, and its attributes are read, before the program runs.
go_read, go_write = os.pipe()
child, terminal = pty.fork()
if child == 0:
    os.read(go_read, 1)
    os.environ["TERM"] = "xterm"
    os.execv(binary, [binary, "ctl", "--pid", pid, "top", "--every", "0.1"])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
before = termios.tcgetattr(terminal)
os.write(go_write, b"x")
screen = [[" "] * COLUMNS for _ in range(ROWS)]
at = [0, 0]
raw = b""
pending = ""
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])")


def show(text: str) -> None:
    """Puts onto the screen what a terminal would: text, and where it goes."""
    global pending
    text = pending + text
    pending = ""
    place = 0
    while place < len(text):
        found = SEQUENCE.match(text, place)
        if found:
            numbers = found.group(1)
            if found.group(2) == "H":
                row, _, column = numbers.partition(";")
                at[:] = [int(row or 1) - 1, int(column or 1) - 1]
            elif found.group(2) == "J":
                for line in screen:
                    line[:] = [" "] * COLUMNS
            place = found.end()
        elif text[place] == "\x1b":
            pending = text[place:]
            return
        else:
            if at[0] < ROWS and at[1] < COLUMNS:
                screen[at[0]][at[1]] = text[place]
            at[1] += 1
            place += 1


def wait_for(wanted: str) -> None:
    global raw
    end = time.monotonic() + 30
    while not any(wanted in "".join(line) for line in screen):
        if time.monotonic() > end:
            sys.exit(f"no {wanted!r} on the screen:\n" + "\n".join("".join(line).rstrip() for line in screen))
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                more = os.read(terminal, 65536)
            except OSError:
                more = b""
            if not more:
                sys.exit(f"ended without {wanted!r}: {raw[-2000:]!r}")
            raw += more
            show(more.decode("utf-8", "replace"))


wait_for(peer)
wait_for("sessions:")
# The HTTP session is the elder one, and chosen.
os.write(terminal, b"f")
wait_for("f again")
os.write(terminal, b"f")
wait_for("forceful shutdown")
os.write(terminal, b"q")
seen = b""
try:
    while True:
        more = os.read(terminal, 65536)
        if not more:
            break
        seen += more
except OSError:
    pass
_, status = os.waitpid(child, 0)
if os.waitstatus_to_exitcode(status) != 0:
    sys.exit(f"it ended with {status}: {seen!r}")
if b"\x1b[?1049l" not in seen:
    sys.exit(f"the screen was not given back: {seen!r}")
after = termios.tcgetattr(terminal)
if before[3] & (termios.ECHO | termios.ICANON) != after[3] & (termios.ECHO | termios.ICANON):
    sys.exit("the terminal does not echo any more")
