"""Requests that botocore does not make: signed by hand, with chunked bodies or another clock."""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse


def sign(endpoint, keys, method, path, headers, now):
    """Adds SigV4's headers to `headers`; returns what the chunks' signatures continue: the
    scope, the key's signer, the signature.
    """
    now = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    headers.update({"host": urllib.parse.urlsplit(endpoint).netloc, "x-amz-date": now})
    names = ";".join(sorted(headers))
    canonical = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    path, _, query = path.partition("?")
    request = f"{method}\n{path}\n{query}\n{canonical}\n{names}\n{headers['x-amz-content-sha256']}"
    key = ("AWS4" + keys["aws_secret_access_key"]).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()

    def signature_of(text):
        return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

    signature = signature_of(f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}")
    credential = f"{keys['aws_access_key_id']}/{scope}"
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    return f"{now}\n{scope}", signature_of, signature


def send(endpoint, method, path, headers, body=None):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc)
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def put_chunked(endpoint, keys, path, body, kind, crc, drop=(), stated=None):
    """Puts a body in chunks of 64 KiB. `drop` names what is left out, as if cut there: numbers
    of chunks, "last" and "trailer". The query of a path is written with its pairs sorted.
    """
    headers = {"content-encoding": "aws-chunked", "x-amz-content-sha256": kind}
    headers["x-amz-decoded-content-length"] = str(len(body) if stated is None else stated)
    if "TRAILER" in kind:
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    scope, signature_of, signature = sign(
        endpoint, keys, "PUT", path, headers, datetime.datetime.now(datetime.timezone.utc)
    )
    empty = hashlib.sha256(b"").hexdigest()
    pieces = {}
    for number, start in enumerate(list(range(0, len(body), 65_536)) + [len(body)]):
        chunk = body[start : start + 65_536]
        line = b"%x" % len(chunk)
        if "UNSIGNED" not in kind:
            digest = hashlib.sha256(chunk).hexdigest()
            signature = signature_of(f"AWS4-HMAC-SHA256-PAYLOAD\n{scope}\n{signature}\n{empty}\n{digest}")
            line += b";chunk-signature=" + signature.encode()
        sent = chunk[::-1] if crc == "spoil" and start == 131_072 else chunk
        pieces[number if chunk else "last"] = line + b"\r\n" + (sent + b"\r\n" if chunk else b"")
    if "TRAILER" in kind:
        trailer = f"x-amz-checksum-crc32:{crc}\n"
        pieces["trailer"] = trailer.strip().encode() + b"\r\n"
        if "UNSIGNED" not in kind:
            digest = hashlib.sha256(trailer.encode()).hexdigest()
            signature = signature_of(f"AWS4-HMAC-SHA256-TRAILER\n{scope}\n{signature}\n{digest}")
            pieces["trailer"] += f"x-amz-trailer-signature:{signature}\r\n".encode()
    encoded = b"".join(piece for name, piece in pieces.items() if name not in drop)
    return send(endpoint, "PUT", path, headers, encoded if "last" in drop else encoded + b"\r\n")
