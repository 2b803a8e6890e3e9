//! The S3 front on a loopback port, and the real boto3 as its client.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use shoal_s3::{KeyFault, KeyStore, Options, PolicyCaller, PrivateTransport, S3Front, Scope};
use shoal_store::{DataDir, Objects};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A server for as long as this lives.
pub(crate) struct Server {
    endpoint: String,
    _runtime: Runtime,
    dir: DataDir,
    _temp: tempfile::TempDir,
}

/// Secret, session token if there is one, and what it opens.
struct Keys(HashMap<&'static str, (&'static str, Option<&'static str>, Scope)>);

impl KeyStore for Keys {
    fn full(&self, _: &str, _: Option<&str>) -> Option<String> {
        None
    }

    fn caller(&self, _: &str, _: Option<&str>) -> PolicyCaller {
        PolicyCaller::default()
    }

    fn secret(&self, access_key_id: &str) -> Option<String> {
        self.0.get(access_key_id).map(|(secret, ..)| (*secret).to_owned())
    }

    fn scope(&self, access_key_id: &str, session_token: Option<&str>) -> Result<Scope, KeyFault> {
        let (_, token, scope) = self.0.get(access_key_id).ok_or(KeyFault::Unknown)?;
        if token.is_some_and(|token| session_token != Some(token)) {
            Err(KeyFault::WrongToken)
        } else {
            Ok(scope.clone())
        }
    }
}

fn keys() -> Keys {
    let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
    let own = ("own/secret+1", None, Scope::All);
    let scope =
        Scope::Job { read: vec![pair("data", "train/"), pair("data", "job/")], write: vec![pair("data", "job/")] };
    let job = ("job-secret", Some("token/+="), scope);
    Keys(HashMap::from([("AKIAOWN", own), ("ASIAJOB", job)]))
}

impl Server {
    pub(crate) fn start() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Arc::new(Objects::open(&dir).unwrap());
        let options = Options {
            region: "us-east-1".to_owned(),
            account: "123456789012".to_owned(),
            max_skew: Duration::from_secs(900),
            strict: false,
        };
        let front = S3Front::new(objects, Arc::new(keys()), options);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let front = front.clone();
                tokio::spawn(async move {
                    let service = service_fn(|mut request: Request<Incoming>| async {
                        // As if another request came over a network in plain HTTP.
                        if !request.headers().contains_key("x-public") {
                            request.extensions_mut().insert(PrivateTransport);
                        }
                        let awaits_continue = request.headers().contains_key(EXPECT);
                        let mut answer = front.call(request).await;
                        // The body may follow all the same; see `server::unread_bodies`.
                        if awaits_continue && !answer.status().is_success() {
                            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                        }
                        Ok::<_, Infallible>(answer)
                    });
                    // A client that goes away is not this test's business.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        Self { endpoint, _runtime: runtime, dir, _temp: temp }
    }

    /// How many files hold objects and parts.
    pub(crate) fn object_files(&self) -> usize {
        let shards = std::fs::read_dir(self.dir.objects_path()).unwrap();
        shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
    }

    /// Runs a case of this script beside `client.py` against the server. Returns false, saying why,
    /// where there is no boto3.
    pub(crate) fn check(&self, script: &str, case: &str) -> bool {
        let probe = Command::new("python3").args(["-c", "import boto3"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            println!("skipped: needs python3 with boto3");
            return false;
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
        let output = Command::new("python3").arg(script).args([case, &self.endpoint]).output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{case}:\n{stdout}{stderr}");
        true
    }
}
