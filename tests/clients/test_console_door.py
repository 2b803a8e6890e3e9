"""Who may see the console, and what its answers say to a browser. No browser needed."""

import hashlib
import hmac
import http.client
import time
import urllib.parse

import pytest

PAGES = [
    "/console",
    "/console/jobs/none",
    "/console/jobs/none/stop",
    "/console/tuning",
    "/console/tuning/none",
    "/console/no/such/page",
]
PARTS = ["/console/changes", "/console/jobs/none/series", "/console/jobs/none/logs", "/console/object?bucket=a&key=b"]


class Visitor:
    """Requests without a browser: cookies are kept, redirects are not followed."""

    def __init__(self, house):
        variables = house.variables_for_clients()
        self.house = house
        self.address = urllib.parse.urlsplit(variables["AWS_ENDPOINT_URL"]).netloc
        self.keys = {
            "access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
        }
        self.cookie = None
        self.flags = None

    def ask(self, method, path, form=None, **headers):
        body = urllib.parse.urlencode(form) if form is not None else None
        if method == "POST":
            headers = {"Origin": f"http://{self.address}", **headers}
        if self.cookie:
            headers["Cookie"] = self.cookie
        connection = http.client.HTTPConnection(self.address, timeout=120)
        connection.request(method, path, body, {key: value for key, value in headers.items() if value is not None})
        response = connection.getresponse()
        # Events have no end.
        response.text = response.read().decode() if response.getheader("Content-Type") != "text/event-stream" else ""
        connection.close()
        if cookie := response.getheader("Set-Cookie"):
            self.cookie, *self.flags = cookie.split("; ")
        return response

    def link(self):
        """The path of a link that signs in."""
        return self.house.shoal("console").stdout.strip().split(self.address)[1]

    def is_in(self):
        return self.ask("GET", "/console/session").text == "true"


@pytest.fixture
def visitor(house):
    return Visitor(house)


def test_nothing_is_shown_to_strangers(visitor):
    for path in PAGES:
        response = visitor.ask("GET", path)
        assert (response.status, response.getheader("Location")) == (
            303,
            f"/console/sign-in?next={urllib.parse.quote(path, safe='')}",
        )
    for path in PARTS:
        assert visitor.ask("GET", path, **{"Sec-Fetch-Mode": "cors"}).status == 401, path
    assert visitor.ask("POST", "/console/jobs/none/stop").status == 401


def test_the_front_door(visitor):
    browser = visitor.ask("GET", "/", Accept="text/html,application/xhtml+xml")
    assert (browser.status, browser.getheader("Location")) == (303, "/console")
    for path in ["/", "/healthz"]:
        probe = visitor.ask("GET", path)
        assert (probe.status, probe.text.split()[0]) == (200, "shoal")


def test_every_answer_protects_itself(visitor):
    visitor.ask("POST", "/console/sign-in", visitor.keys)
    for path in ["/", "/healthz", "/console/sign-in", *PAGES, *PARTS]:
        headers = visitor.ask("GET", path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy, path
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store", path


def test_keys_open_and_sign_out_closes(visitor):
    right = visitor.ask("POST", "/console/sign-in", {**visitor.keys, "next": "/console?q=a"})
    assert (right.status, right.getheader("Location")) == (303, "/console?q=a")
    assert visitor.is_in()
    assert {"HttpOnly", "SameSite=Strict", "Path=/console"} <= set(visitor.flags)
    kept = visitor.cookie
    assert visitor.ask("POST", "/console/sign-out").status == 303
    assert not visitor.is_in()
    visitor.cookie = kept
    assert not visitor.is_in(), "what was signed out stays out, whoever has kept the cookie"


def test_one_leaves_for_no_other_site(visitor):
    for elsewhere in ["//evil.example", "https://evil.example", "/consoles", "/", "/console\\@evil.example\r\nX: y"]:
        right = visitor.ask("POST", "/console/sign-in", {**visitor.keys, "next": elsewhere})
        assert right.getheader("Location") == "/console", elsewhere


def test_a_link_opens_once(visitor):
    link = visitor.link()
    response = visitor.ask("GET", link)
    assert (response.status, response.getheader("Location")) == (303, "/console")
    assert visitor.is_in()
    visitor.cookie = None
    assert visitor.ask("GET", link).status == 403
    assert not visitor.is_in()
    assert visitor.ask("GET", link[:-1] + ("0" if link[-1] != "0" else "1")).status == 403


def test_a_session_survives_a_restart_and_links_do_not(new_house):
    house = new_house()
    visitor = Visitor(house)
    link = visitor.link()
    visitor.ask("GET", link)
    kept = visitor.cookie
    house.stop()
    house.start()
    visitor = Visitor(house)
    visitor.cookie = kept
    assert visitor.is_in()
    visitor.cookie = None
    assert visitor.ask("GET", link).status == 403


def test_cookies_that_are_not_ours(visitor):
    visitor.ask("POST", "/console/sign-in", visitor.keys)
    name, ticket = visitor.cookie.split("=")
    end, nonce, key, mac = ticket.split(".")
    assert key == visitor.keys["access_key_id"]

    def signed(end, secret=visitor.keys["secret_access_key"], purpose="console-session:", key=f".{key}"):
        body = f"{end}.{nonce}{key}"
        return f"{body}.{hmac.new(secret.encode(), (purpose + body).encode(), hashlib.sha256).hexdigest()}"

    now = int(time.time())
    for value, expected in [
        (ticket, True),
        (signed(now + 60), True),
        (signed(now - 1), False),
        (signed(now + 60, purpose="console-sign-in:"), False),
        (signed(now + 60, secret="guessed"), False),
        (signed(now + 60, key=""), True),  # As earlier versions write them: the owner's.
        (signed(now + 60, key=".AKIA0000000000000000"), False),
        (f"{int(end) + 1}.{nonce}.{key}.{mac}", False),
        (f"{end}.{nonce}.{mac}", False),
        (f"{end}.{nonce}.{key}.{'0' * 64}", False),
        (f"{end}.{nonce}.{key}.", False),
        ("", False),
    ]:
        visitor.cookie = f"{name}={value}"
        assert visitor.is_in() == expected, value
    visitor.cookie = f"shoal-0000000000000000={ticket}"
    assert not visitor.is_in(), "another server's cookie"


def test_other_sites_cannot_post(visitor):
    visitor.ask("POST", "/console/sign-in", visitor.keys)
    for origin in ["http://evil.example", "null", None, f"http://{visitor.address}.evil.example"]:
        assert visitor.ask("POST", "/console/sign-out", Origin=origin).status == 403, origin
    assert visitor.is_in()


def test_guessing_is_slow(new_house):
    visitor = Visitor(new_house())
    wrong = {**visitor.keys, "secret_access_key": "guess"}
    answers = [visitor.ask("POST", "/console/sign-in", wrong) for _ in range(12)]
    assert {answer.status for answer in answers} == {403, 429}
    assert "Too many wrong tries" in answers[-1].text and "shoal console" in answers[-1].text
    assert visitor.ask("POST", "/console/sign-in", visitor.keys).status == 429
    assert visitor.ask("GET", visitor.link()).status == 303, "the owner's link needs no patience"


def test_a_job_cannot_come_in(visitor, jobs):
    """The temporary keys of a job open its S3 and nothing here."""
    name = jobs.command("env | grep AWS_; sleep 0.1")
    jobs.completed(name)
    said = dict(line.split("=", 1) for line in jobs.logs(name)["algo-1"] if line.startswith("AWS_"))
    keys = {"access_key_id": said["AWS_ACCESS_KEY_ID"], "secret_access_key": said["AWS_SECRET_ACCESS_KEY"]}
    assert visitor.ask("POST", "/console/sign-in", keys).status == 403


def test_the_command_tells_what_it_cannot_do(new_house, house):
    assert house.shoal("console", "no-such-job", check=False).returncode == 5
    closed = new_house()
    closed.stop()
    assert closed.shoal("console", check=False).returncode == 3
