"""Single sign-on to the console, with a real OpenID Connect provider and a real browser."""

import json
import urllib.parse

import identity_provider
import pytest
from browser import browsers
from house import House, eventually, free_port
from identity_provider import CLIENT_ID, CLIENT_SECRET, PASSWORD
from playwright.sync_api import expect
from test_console_door import Visitor


@pytest.fixture(scope="module")
def sso():
    """A server whose visitors sign in by a provider."""
    port, of_provider = free_port(), free_port()
    callback = f"http://127.0.0.1:{port}/console/sso/callback"
    settings = f"""
[sso]
issuer = "{identity_provider.issuer(of_provider)}"
client_id = "{CLIENT_ID}"
client_secret_file = "oidc-secret"
[sso.keys]
"anna@example.org" = "anna"
"carl@example.org" = "gone"
"""
    house = House(port=port, settings=settings)
    try:
        (house.data / "oidc-secret").write_text(CLIENT_SECRET + "\n")
        house.shoal("keys", "add", "anna", "--role", "user")
        with identity_provider.running(of_provider, callback, eventually):
            yield house
    finally:
        house.close()


@pytest.fixture
def window(sso):
    with browsers() as windows:
        yield windows(sso, signed_in=False)


def sign_in(window, name):
    """At the provider, from the console's door."""
    page = window.go("/console/experiments")
    window.is_accessible()
    page.get_by_role("link", name="Sign in by localhost").click()
    page.get_by_label("Login").fill(name)
    page.locator("button[type=submit]").last.click()
    page.locator("input[type=password]").fill(PASSWORD)
    page.locator("button[type=submit]").last.click()
    return page


def test_a_browser_signs_in_by_the_provider(sso, window):
    page = sign_in(window, "anna")
    expect(page).to_have_url(f"{window.base}/console/experiments")
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
    assert not window.complaints

    def noted():
        events = map(json.loads, (sso.data / "audit.log").read_text().splitlines())
        return [(it["user"], it["resources"]) for it in events if it.get("operation") == "ConsoleLogin"]

    eventually(lambda: noted() == [("anna", ["anna@example.org"])])
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "reason"), [("ben", "ben@example.org (email) has no key on this server"), ("carl", "There is no key gone")]
)
def test_who_has_no_key_is_refused(sso, window, name, reason):
    page = sign_in(window, name)
    expect(page.get_by_text(reason)).to_be_visible()
    page.goto(window.base + "/console")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_what_the_browser_did_not_begin_is_refused(sso):
    visitor = Visitor(sso)
    begun = visitor.ask("GET", "/console/sso?next=/console/tuning")
    assert begun.status == 303 and "SameSite=Lax" in visitor.flags and "HttpOnly" in visitor.flags
    query = urllib.parse.parse_qs(urllib.parse.urlsplit(begun.getheader("Location")).query)
    assert query["code_challenge_method"] == ["S256"] and query["response_type"] == ["code"]
    state = query["state"][0]
    refused = [
        visitor.ask("GET", "/console/sso/callback?code=x&state=0"),
        Visitor(sso).ask("GET", f"/console/sso/callback?code=x&state={state}"),
        visitor.ask("GET", f"/console/sso/callback?error=access_denied&state={state}"),
    ]
    assert [it.status for it in refused] == [403, 403, 403]
    assert "refused: access_denied" in refused[2].text
    wrong = visitor.ask("GET", f"/console/sso/callback?code=x&state={state}")
    assert wrong.status == 502 and "its token endpoint answered 400 Bad Request: invalid_grant" in wrong.text
    assert not visitor.is_in()
