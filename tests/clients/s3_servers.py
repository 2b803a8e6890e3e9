"""S3 servers of others, each with the bucket `ours`: moto's, and s3s-fs where it is installed."""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from house import eventually, free_port

BUCKET = "ours"
KEYS = {"AWS_ACCESS_KEY_ID": "akid", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}

#: What `Server` takes; s3s-fs skips the test where it is not installed.
KINDS = ["moto", "s3s-fs"]
#: What `cargo xtask bench` installs, or what is on PATH.
S3S_FS = shutil.which("s3s-fs") or os.path.expanduser("~/.cache/shoal/peers/bin/s3s-fs")


class Door:
    """A port that leads to another one, unless it is shut."""

    def __init__(self, to):
        self.to, self.port, self.listener, self.connections = to, free_port(), None, set()
        #: Requests with an address that is signed, and whether they are cut off.
        self.signed, self.refuses_signed = 0, False
        self.open()

    def open(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=[self.listener], daemon=True).start()

    def shut(self):
        if self.listener:
            # A close alone does not wake the thread that accepts.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                if self.listener is not listener:
                    return
                client.close()
                continue
            self.connections |= {client, server}
            for one, other in [(client, server), (server, client)]:
                threading.Thread(target=self._copy, args=[one, other], daemon=True).start()

    def _copy(self, one, other):
        with contextlib.suppress(OSError):
            while piece := one.recv(1 << 16):
                if piece.startswith(b"GET ") and b"X-Amz-Signature=" in piece.split(b"\r\n", 1)[0]:
                    self.signed += 1
                    if self.refuses_signed:
                        break
                other.sendall(piece)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.connections -= {one, other}


class Server:
    """One of them, behind a door."""

    def __init__(self, kind):
        if kind == "s3s-fs" and not os.path.exists(S3S_FS):
            pytest.skip("needs s3s-fs 0.14: cargo install s3s-fs --features binary, or cargo xtask bench s3")
        self.kind = kind
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="shoal-s3-"))
        self.port = free_port()
        self.door = Door(self.port)
        self.endpoint = f"http://127.0.0.1:{self.door.port}"
        self.process = None
        (self.root / BUCKET).mkdir()
        self.start()

    def start(self):
        if self.kind == "moto":
            command = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
        else:
            keys = ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
            command = [S3S_FS, *keys, "--host", "127.0.0.1", "--port", str(self.port), str(self.root)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self._answers)

    def _answers(self):
        s3 = self.client(retries={"total_max_attempts": 1}, connect_timeout=2)
        try:
            if self.kind == "moto":
                s3.create_bucket(Bucket=BUCKET)
            return BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
        except BotoCoreError:
            return False

    def away(self):
        """Nothing reaches it until `back`; what is on its way is cut off."""
        self.door.shut()

    def back(self):
        self.door.open()

    def stop(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.door.shut()
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def client(self, **config):
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=KEYS["AWS_REGION"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}, **config),
        )

    def names(self, prefix=""):
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def address(self, prefix):
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}&region={KEYS['AWS_REGION']}"
