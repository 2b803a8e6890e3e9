use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers requests by a function of their first line and their `Authorization`; what was asked.
/// The demands and redirections of public registries, which no registry on this machine makes; a
/// real one is asked by tests/clients/test_kubernetes.py.
async fn server(
    answer: impl Fn(&str, &str, &str) -> String + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (here, asked) = (address.clone(), Arc::<Mutex<Vec<String>>>::default());
    let lines = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a request"));
            }
            let request = String::from_utf8(request).expect("text");
            let line = request.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
            let header = request.lines().find(|it| it.to_ascii_lowercase().starts_with("authorization:"));
            let permission = header.and_then(|it| it.split_once(": ")).map_or("", |(_, value)| value);
            let text = answer(&here, &line, permission);
            lines.lock().expect("no panic").push(format!("{line} {permission}"));
            // Too much is not read to its end.
            let _ = stream.write_all(text.as_bytes()).await;
        }
    });
    (address, asked)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn status(status: &str, header: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n{header}\r\n\r\n")
}

async fn entrypoint(address: &str, logins: &[Login]) -> Result<Vec<String>, RegistryError> {
    let registries = Registries::new(Vec::new()).expect("TLS");
    let image = Reference::parse(&format!("{address}/me/a:1")).expect("a name");
    registries.entrypoint(&image, "amd64", logins).await
}

#[tokio::test]
async fn a_token_is_got_and_the_blob_is_elsewhere() {
    let (elsewhere, of_store) = server(|_, _, _| ok(r#"{"config": {"Entrypoint": ["python", "/a.py"]}}"#)).await;
    let (address, asked) = server(move |here, line, permission| match (line, permission) {
        (line, "Basic bWU6cHc=") if line.starts_with("GET /token?") => ok(r#"{"token": "t"}"#),
        (line, _) if line.starts_with("GET /token?") => status("401 Unauthorized", "A: b"),
        (line, "Bearer t") => match line.rsplit('/').next() {
            Some("1") => {
                ok(r#"{"manifests": [{"digest": "sha256:m", "platform": {"os": "linux", "architecture": "amd64"}}]}"#)
            }
            Some("sha256:m") => ok(r#"{"config": {"digest": "sha256:c"}}"#),
            _ => status("307 Temporary Redirect", &format!("Location: http://{elsewhere}/signed?x=1")),
        },
        _ => {
            status("401 Unauthorized", &format!("WWW-Authenticate: Bearer realm=\"http://{here}/token\",service=\"s\""))
        }
    })
    .await;
    let login = Login::Password { user: "me".to_owned(), password: "pw".to_owned() };
    let wrong = Login::Password { user: "me".to_owned(), password: "old".to_owned() };
    let found = entrypoint(&address, &[wrong, login]).await;
    assert_eq!(found, Ok(vec!["python".to_owned(), "/a.py".to_owned()]));
    assert_eq!(*of_store.lock().expect("no panic"), ["GET /signed?x=1 "], "the token is the registry's alone");
    let asked = asked.lock().expect("no panic").clone();
    assert_eq!(asked[1], "GET /token?service=s&scope=repository%3Ame%2Fa%3Apull Basic bWU6b2xk");
    assert_eq!(asked.iter().filter(|it| it.contains("/token?")).count(), 2, "one token for all that is read");
    let refused = entrypoint(&address, &[]).await;
    assert_eq!(refused, Err(RegistryError::Refused { host: address, status: 401 }));
}

#[tokio::test]
async fn what_a_registry_answers_wrongly_is_explained() {
    for (answer, expected) in [
        (ok("<html>"), "is not understood: its manifest is none"),
        (ok(r#"{"manifests": [{"digest": "sha256:m"}]}"#), "its index leads to another index"),
        (status("503 Service Unavailable", "A: b"), "cannot be reached: HTTP 503"),
        (status("404 Not Found", "A: b"), "does not show it (HTTP 404)"),
        (status("302 Found", "Location: /again"), "leads from one place to the next"),
        (status("302 Found", "A: b"), "leads nowhere"),
        (status("302 Found", "Location: http://10.0.0.1/"), "it leads to http://10.0.0.1, which is without TLS"),
        (status("401 Unauthorized", "WWW-Authenticate: Negotiate"), "does not show it (HTTP 401)"),
        (ok(&" ".repeat(MAX_BYTES + 1)), "length limit exceeded"),
    ] {
        let (address, _) = server(move |_, _, _| answer.clone()).await;
        let error = entrypoint(&address, &[]).await.expect_err("no answer").to_string();
        assert!(error.starts_with(&address) && error.contains(expected), "{error}");
    }
}

#[test]
fn only_registries_that_are_named_are_asked_without_tls() {
    let registries = Registries::new(vec!["registry.local:5000".to_owned()]).expect("TLS");
    assert!(registries.may_be_plain("registry.local:5000") && registries.may_be_plain("localhost:5000"));
    assert!(!registries.may_be_plain("registry.local") && !registries.may_be_plain("ghcr.io"));
}
