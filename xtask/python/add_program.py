"""Puts a program into a wheel as its script: `python add_program.py WHEEL PROGRAM DIRECTORY`, which
gets the new wheel; prints its name.

The wheel's platform becomes the oldest glibc that has what both the extension and the program ask
for. The same inputs give the same bytes.
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import sys
import time
import zipfile

wheel, program, directory = map(pathlib.Path, sys.argv[1:])
# Zip knows no time before 1980.
moment = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
name, version, python, abi, _ = wheel.stem.split("-")
info = f"{name}-{version}.dist-info"
script = f"{name}-{version}.data/scripts/{program.name}"

with zipfile.ZipFile(wheel) as archive:
    files = {member.filename: archive.read(member) for member in archive.infolist()}
files[script] = program.read_bytes()
machine = os.uname().machine
asked = [
    int(minor)
    for content in files.values()
    if content[:4] == b"\x7fELF"
    for minor in re.findall(rb"GLIBC_2\.(\d+)", content)
]
platform = f"manylinux_2_{max(asked)}_{machine}"
text = files[f"{info}/WHEEL"].decode()
files[f"{info}/WHEEL"] = (
    re.sub(r"(?m)^Tag: .*\n", "", text).rstrip("\n").encode() + f"\nTag: {python}-{abi}-{platform}\n".encode()
)
del files[f"{info}/RECORD"]
rows = io.StringIO()
writer = csv.writer(rows, lineterminator="\n")
for path, content in sorted(files.items()):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    writer.writerow([path, f"sha256={digest}", len(content)])
writer.writerow([f"{info}/RECORD", "", ""])
files[f"{info}/RECORD"] = rows.getvalue().encode()

made = directory / f"{name}-{version}-{python}-{abi}-{platform}.whl"
with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
    # RECORD comes last, as wheels have it.
    for path in sorted(files, key=lambda path: (path.endswith("/RECORD"), path)):
        member = zipfile.ZipInfo(path, moment)
        member.compress_type = zipfile.ZIP_DEFLATED
        member.external_attr = (0o100755 if path == script or path.endswith(".so") else 0o100644) << 16
        archive.writestr(member, files[path])
print(made.name)
