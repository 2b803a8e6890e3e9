"""Pages of docs/, run from top to bottom as a reader would."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import pytest
from house import SHOAL, eventually

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def blocks(page):
    return re.findall(r"^```(\S+)(?: (server))?\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["guide.md", "spot.md"])
def test_the_page_works(page):
    with tempfile.TemporaryDirectory(prefix="shoal-guide-") as home:
        cache = os.environ.get("SHOAL_CACHE", os.path.expanduser("~/.cache/shoal"))
        path = f"{SHOAL.parent}:{os.environ['PATH']}"
        environment = {"HOME": home, "PATH": path, "SHOAL_CACHE": cache, "SHOAL_LISTEN": "127.0.0.1:0"}
        data = pathlib.Path(home, ".local/share/shoal")
        run = set()
        server = None
        try:
            for language, role, text in blocks(page):
                run.add(language)
                if role == "server":
                    server = subprocess.Popen(["sh", "-c", f"exec {text}"], env=environment, cwd=home)
                    eventually(lambda: (data / "address").exists())
                elif language == "sh":
                    subprocess.run(["sh", "-eu", "-c", text], check=True, env=environment, cwd=home)
                elif language == "python":
                    command = [str(SHOAL), "exec", "--", sys.executable, "-c", text]
                    subprocess.run(command, check=True, env=environment, cwd=home)
        finally:
            if server:
                server.send_signal(signal.SIGTERM)
                server.wait(30)
        assert {"sh", "python"} <= run
