//! S3 requests with any path and query, signed with the owner's keys: no panic, no 5xx, nothing
//! outside the data directory, and what was put under a key comes back from it.
#![no_main]

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use libfuzzer_sys::fuzz_target;
use shoal_s3::{Body, Key, KeyStore, Options, S3Front, Scope};
use shoal_store::{DataDir, Objects};
use shoal_wire::{client, sigv4::Credentials};

struct Stage {
    front: S3Front,
    runtime: tokio::runtime::Runtime,
    _data_dir: DataDir,
    _temporary: tempfile::TempDir,
}

struct Owner;

impl KeyStore for Owner {
    fn secret(&self, access_key_id: &str) -> Option<Key> {
        (access_key_id == "AKIA").then(|| Key { secret: "secret".to_owned(), session_token: None, scope: Scope::All })
    }
}

fn stage() -> &'static Stage {
    static STAGE: OnceLock<Stage> = OnceLock::new();
    STAGE.get_or_init(|| {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let data_dir = DataDir::open(temporary.path()).expect("a data directory");
        let objects = Arc::new(Objects::open(&data_dir).expect("objects"));
        let options = Options {
            region: "us-east-1".to_owned(),
            account: "000000000000".to_owned(),
            max_skew: Duration::from_secs(900),
        };
        let front = S3Front::new(objects, Arc::new(Owner), options);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let stage = Stage { front, runtime, _data_dir: data_dir, _temporary: temporary };
        assert_eq!(call(&stage, Method::PUT, "/bucket", Vec::new()).expect("a plain path").0, 200);
        stage
    })
}

/// Status and body; nothing where the path is no path.
fn call(stage: &Stage, method: Method, path: &str, body: Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    let credentials =
        Credentials { access_key_id: "AKIA".to_owned(), secret_access_key: "secret".to_owned(), session_token: None };
    let endpoint = client::Endpoint {
        scheme: client::Scheme::HTTP,
        authority: "127.0.0.1:9777".to_owned(),
        region: "us-east-1".to_owned(),
        credentials,
    };
    let (head, body) = client::s3(&endpoint, method, path, body, now).ok()?.into_parts();
    let request = Request::from_parts(head, Body::from(Bytes::from(body)));
    stage.runtime.block_on(async {
        let response = stage.front.call(request).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes().to_vec();
        Some((status, body))
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else { return };
    let Ok(path) = std::str::from_utf8(rest) else { return };
    let stage = stage();
    let methods = [Method::GET, Method::PUT, Method::POST, Method::DELETE, Method::HEAD];
    let method = methods[usize::from(*choice) % methods.len()].clone();
    let Some((status, body)) = call(stage, method, &format!("/bucket/{path}"), rest.to_vec()) else { return };
    assert!(status < 500 || status == 501, "{status}: {}", String::from_utf8_lossy(&body));
    // The whole input as one key, percent-encoded.
    let key: String = rest.iter().map(|byte| format!("%{byte:02X}")).collect();
    if key.is_empty() {
        return;
    }
    let Some((put, _)) = call(stage, Method::PUT, &format!("/bucket/{key}"), rest.to_vec()) else { return };
    assert!(put < 500, "{put}");
    if put == 200 {
        let (status, body) = call(stage, Method::GET, &format!("/bucket/{key}"), Vec::new()).expect("the same path");
        assert!(status == 200 && body == rest, "{status}");
        assert_eq!(call(stage, Method::DELETE, &format!("/bucket/{key}"), Vec::new()).expect("the same path").0, 204);
    }
});
