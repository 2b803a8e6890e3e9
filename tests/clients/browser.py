"""Debian's Chromium, driven by Playwright, and what every page of the console must keep to."""

import contextlib
import os
import shutil
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

# No sandbox, since tests run as root; and nothing that would look for the network.
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update
    --disable-sync""".split()

# The limit is for a busy machine: it costs time only when a test fails.
expect.set_options(timeout=60_000)

PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 800}


def chromium():
    """Where Chromium is, installed if this machine lets us."""
    if not shutil.which("chromium"):
        if os.getuid() != 0 or not shutil.which("apt-get"):
            pytest.skip("needs chromium")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "-q", *command], check=True, env=environment, stdout=subprocess.DEVNULL)
    return shutil.which("chromium")


@contextlib.contextmanager
def browsers():
    """A function that opens a browser's window on a server; in the end everything that windows
    must not do has not been done.
    """
    executable = chromium()
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        contexts = []

        def open_window(house, signed_in=True, dark=False, **options):
            options = {"viewport": DESK, "color_scheme": "dark" if dark else "light", **options}
            context = engine.new_context(**options)
            contexts.append(context)
            return Window(context, house, signed_in)

        yield open_window
        for context in contexts:
            context.close()
        engine.close()


class Window:
    """A page of the console, and everything it asked for."""

    def __init__(self, context, house, signed_in):
        self.house = house
        self.base = house.variables_for_clients()["AWS_ENDPOINT_URL"]
        self.page = context.new_page()
        # What axe looks at; in the dark nothing but colours is different.
        self.rules = None
        self.requests = []
        self.complaints = []
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on(
            "dialog", lambda dialog: (self.complaints.append(f"a script called {dialog.type}"), dialog.dismiss())
        )
        if signed_in:
            self.page.goto(link(house))

    def go(self, path):
        self.page.goto(self.base + path)
        return self.page

    def is_sound(self):
        """No script failed or was blocked, and nothing came from anywhere else."""
        assert not self.complaints
        strangers = [url for url in self.requests if not url.startswith((self.base + "/", "data:"))]
        assert not strangers

    def is_accessible(self):
        """axe finds nothing serious."""
        only = {"runOnly": {"type": "rule", "values": self.rules}} if self.rules else None
        results = Axe().run(self.page, options=only)
        found = [
            (it["id"], it["nodes"][0]["html"])
            for it in results.response["violations"]
            if it["impact"] in ("serious", "critical")
        ]
        assert not found, (self.page.url, found)

    def fits(self):
        """Nothing has to be scrolled sideways to."""
        width = self.page.evaluate("document.scrollingElement.scrollWidth")
        assert width <= self.page.viewport_size["width"], self.page.url


def link(house):
    """A link that signs in."""
    return house.shoal("console").stdout.strip()
