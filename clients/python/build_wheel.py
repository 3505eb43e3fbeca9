"""Builds a wheel: python3 build_wheel.py [FOLDER]

The package is plain Python, so a wheel is an archive with a list of its files. Nothing else is needed for that, and the same
source gives the same bytes.
"""

import base64
import hashlib
import os
import re
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name: str) -> str:
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def setting(name: str) -> str:
    found = re.search(rf'^{name} = "(.*)"$', read("pyproject.toml"), re.MULTILINE)
    if not found:
        sys.exit(f"pyproject.toml has no {name}")
    return found.group(1)


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "dist")
    name, version = setting("name"), setting("version")
    classifiers = re.findall(r'^    "(.* :: .*)",$', read("pyproject.toml"), re.MULTILINE)
    info = f"{name}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {setting('description')}",
        "License: MIT",
        f"Requires-Python: {setting('requires-python')}",
        *(f"Classifier: {classifier}" for classifier in classifiers),
        "Description-Content-Type: text/markdown",
        "",
        read("README.md"),
    ]
    files = {
        f"{name}/{file}": read(os.path.join(name, file))
        for file in sorted(os.listdir(os.path.join(HERE, name)))
        if file.endswith((".py", "py.typed"))
    }
    files[f"{info}/METADATA"] = "\n".join(metadata)
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: sekisho\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(text.encode())}\n")
    files[f"{info}/RECORD"] = "".join(record) + f"{info}/RECORD,,\n"
    os.makedirs(folder, exist_ok=True)
    wheel = os.path.join(folder, f"{name}-{version}-py3-none-any.whl")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    print(wheel)


if __name__ == "__main__":
    main()
