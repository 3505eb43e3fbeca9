"""The files that every server serves, and the small programs of the benchmark, compiled."""
import os
import pathlib
import shutil
import subprocess

NATIVE = pathlib.Path(__file__).parent / "native"
# How many parts (locations) a server of the many has, and how many servers there are.
PARTS = 10
VHOSTS = 1000
LISTING_ENTRIES = 1000
# The pages of `traffic`: from 200 bytes to 40 KB, most of them small.
PAGES = 1000
# The sizes of `files grow`, by the name of their file.
SIZES = {
    "0 B": 0, "1 KB": 1 << 10, "10 KB": 10 << 10, "100 KB": 100 << 10,
    "1 MB": 1 << 20, "10 MB": 10 << 20, "100 MB": 100 << 20,
}


class Site:
    """A folder `base` with the site in `root`, readable for every user."""

    def __init__(self, base):
        self.base = pathlib.Path(base)
        self.root = self.base / "root"
        self.cgi = self.root / "cgi-bin"
        for folder in [self.cgi, self.root / "listing", self.root / "upload", self.root / "size", self.root / "pages"]:
            folder.mkdir(parents=True)
        (self.root / "index.html").write_text("<h1>hello</h1>\n")
        (self.root / "small.html").write_bytes(b"x" * 1024)
        noise = os.urandom(1 << 20)
        for size in SIZES.values():
            with open(self.root / self.sized(size)[1:], "wb") as file:
                for at in range(0, size, len(noise)):
                    file.write(noise[:min(len(noise), size - at)])
        for number in range(PARTS):
            part = self.root / f"part-{number}"
            part.mkdir()
            shutil.copy(self.root / "small.html", part)
        for number in range(LISTING_ENTRIES):
            (self.root / "listing" / f"file-{number:04d}.txt").write_text(str(number))
        for number in range(PAGES):
            size = int(200 * 200 ** (number * 0.618 % 1))
            (self.root / "pages" / f"page-{number:04d}.html").write_bytes(b"p" * size)
        self.programs = {}
        for name in ["floor", "load", "spawn", "backend"]:
            self.programs[name] = str(self.compile(name, self.base / name))
        self.compile("hello", self.cgi / "hello.cgi", "-static")
        # Servers that give up root must still get at it.
        subprocess.run(["chmod", "-R", "a+rwX", base], check=True)

    @staticmethod
    def sized(size):
        """The path of the file with so many bytes."""
        return f"/size/{size}.bin"

    @staticmethod
    def compile(name, output, *options):
        """Compiles one of the programs beside this file."""
        command = ["cc", "-O2", *options, "-o", str(output), str(NATIVE / f"{name}.c")]
        subprocess.run(command, check=True)
        return output
