"""Training programs of the tests, as texts: they run in instances, on the machine's own Python."""

# SigV4 in few lines: instances see the machine's own Python, which has no boto3.
S3 = '''
import datetime, hashlib, hmac, os, urllib.error, urllib.parse, urllib.request

def s3(method, path, body=b"", key=None, service="s3", more={}):
    """Status and body of a signed request; of S3, or of another service."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    key_id, secret = key or (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    now = datetime.datetime.utcnow().strftime("%Y%m%dT%H%M%SZ")
    path, _, query = path.partition("?")
    query = "&".join(sorted(part if "=" in part else part + "=" for part in query.split("&"))) if query else ""
    headers = {"host": urllib.parse.urlsplit(endpoint).netloc, "x-amz-date": now, "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
    headers["x-amz-security-token"] = os.environ["AWS_SESSION_TOKEN"]
    headers.update(more)
    names = ";".join(sorted(headers))
    canonical = "\\n".join([method, path, query, *(f"{n}:{headers[n]}" for n in sorted(headers)), "", names, headers["x-amz-content-sha256"]])
    scope = f"{now[:8]}/us-east-1/{service}/aws4_request"
    text = "\\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    signing = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        signing = hmac.new(signing, part.encode(), "sha256").digest()
    signature = hmac.new(signing, text.encode(), "sha256").hexdigest()
    headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    url = endpoint + path + ("?" + query if query else "")
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body or None, headers, method=method), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
'''

# Counts to LINES and says so, with a value at every tenth; leaves a model of MODEL_BYTES random
# bytes, and a mark in S3 that tells its starts apart whoever else writes there: a program that was
# started twice leaves two.
COUNTING = (
    S3
    + """
import http.client, threading, time, uuid
lines, pause, model = int(os.environ["LINES"]), float(os.environ["PAUSE"]), int(os.environ["MODEL_BYTES"])
job, me = os.environ["TRAINING_JOB_NAME"], os.environ["SM_CURRENT_HOST"]
mark = f"/tests/out/{job}/output/starts/{me}-{uuid.uuid4().hex}"

def leave_mark():
    while True:
        try:
            if s3("PUT", mark, b"1")[0] == 200:
                return
        except (OSError, http.client.HTTPException):
            pass  # The server is being killed all the time.
        time.sleep(0.05)

marking = threading.Thread(target=leave_mark)
marking.start()
for i in range(1, lines + 1):
    print("line", i, flush=True)
    if i % 10 == 0:
        print(f"loss={i};", flush=True)
    time.sleep(pause)
content = os.urandom(model)
with open(f"/opt/ml/model/{me}", "wb") as file:
    file.write(content)
marking.join()
print("model", hashlib.sha256(content).hexdigest(), flush=True)
"""
)
