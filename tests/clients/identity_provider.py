"""A real OpenID Connect provider, Canaille, with its data in memory: `python identity_provider.py
PORT CALLBACK` serves until it is killed. Its users have the password PASSWORD, its client is
CLIENT_ID.
"""

import contextlib
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

CLIENT_ID, CLIENT_SECRET, PASSWORD = "shoal", "only-for-tests", "correct horse battery"
USERS = ("anna", "ben", "carl")


def issuer(port):
    return f"http://localhost:{port}"


@contextlib.contextmanager
def running(port, callback, eventually):
    """A provider in a process of its own. `eventually` waits until it answers."""
    process = subprocess.Popen([sys.executable, Path(__file__), str(port), callback], stderr=subprocess.DEVNULL)

    def answers():
        assert process.poll() is None, "the provider has ended"
        with contextlib.suppress(urllib.error.URLError):
            return urllib.request.urlopen(f"{issuer(port)}/.well-known/openid-configuration", timeout=60).status == 200

    try:
        eventually(answers)
        yield
    finally:
        process.kill()
        process.wait()


def serve(port, callback):
    # Here: only the provider's process needs them.
    from canaille import create_app
    from canaille.app import models
    from canaille.backends import Backend
    from joserfc.jwk import RSAKey
    from werkzeug.serving import make_server

    app = create_app(
        {
            "SECRET_KEY": "of this test",
            "SERVER_NAME": f"localhost:{port}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory"},
            "CANAILLE_OIDC": {"ACTIVE_JWKS": [RSAKey.generate_key(2048, private=True).as_dict(private=True)]},
        }
    )
    with app.app_context():
        for name in USERS:
            mail = f"{name}@example.org"
            user = models.User(user_name=name, formatted_name=name, family_name=name, emails=[mail], password=PASSWORD)
            Backend.instance.save(user)
        client = models.Client(
            client_id=CLIENT_ID,
            client_secret=CLIENT_SECRET,
            client_name="Shoal",
            client_uri="http://localhost",
            contacts=["owner@example.org"],
            redirect_uris=[callback],
            grant_types=["authorization_code"],
            response_types=["code"],
            token_endpoint_auth_method="client_secret_basic",
            scope=["openid", "email", "profile"],
        )
        Backend.instance.save(client)
        client.audience = [client]
        Backend.instance.save(client)
    make_server("127.0.0.1", port, app, threaded=True).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
