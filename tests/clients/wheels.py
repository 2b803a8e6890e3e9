"""Small wheels, made on the spot: a house of them serves pip without a network."""

import base64
import hashlib
import zipfile


def wheel(directory, name, version, requires=None, path_line=None):
    """A module that knows its version, and a script of the same name that prints it; and a line
    of code that every interpreter runs that finds it.
    """
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"import sys\nVERSION = '{version}'\ndef main():\n    print(VERSION, sys.executable)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    if path_line:
        files[f"{name}.pth"] = path_line + "\n"
    record = f"{info}/RECORD,,\n"
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(text)}\n"
        archive.writestr(f"{info}/RECORD", record)
