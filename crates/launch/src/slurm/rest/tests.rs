//! With answers that a thread gives in slurmrestd's place.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::*;

/// Answers a number of requests, each with a status and a body (none: it closes the connection);
/// returns their first lines and tokens.
fn server(answers: Vec<Option<(u16, &'static str)>>) -> (Address, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("an address").port();
    let serve = move || {
        let answer = |answer: Option<(u16, &str)>| {
            let (mut client, _) = listener.accept().expect("a client");
            let (mut request, mut part) = (String::new(), [0; 4096]);
            while !request.contains("\r\n\r\n") {
                let count = client.read(&mut part).expect("a request");
                request.push_str(&String::from_utf8_lossy(&part[..count]));
            }
            if let Some((status, body)) = answer {
                let length = body.len();
                write!(client, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").expect("write");
            }
            let first = request.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
            let lower = request.to_lowercase();
            let token = lower.lines().find_map(|line| line.strip_prefix("x-slurm-user-token: ")).unwrap_or_default();
            format!("{first} {token}")
        };
        answers.into_iter().map(answer).collect()
    };
    (Address::Tcp { host: "127.0.0.1".to_owned(), port, tls: false }, thread::spawn(serve))
}

/// With `token1`, `token2`, ..
fn rest(address: Address, dir: &tempfile::TempDir) -> Rest {
    let count = dir.path().join("count");
    let script = format!("echo x >> {}; echo token$(wc -l < {0})", count.display());
    let token = Some(Token::Command(["/bin/sh", "-c", &script].map(str::to_owned).to_vec()));
    let options = RestOptions { address, version: Version::V38, user: Some("a".to_owned()), token };
    Rest::new(options, Commands::new("lab", None, Vec::new()))
}

const EXPIRED_JOBS: &str = include_str!("answers/v0.0.38/expired_jobs.json");
const EXPIRED_SUBMIT: &str = include_str!("answers/v0.0.38/expired_submit.json");
const AUTHENTICATION: &str = r#"{"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}"#;

#[test]
fn a_token_that_slurmctld_refuses_is_renewed_once_and_fails_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    for first in [Some((500, EXPIRED_JOBS)), Some((511, AUTHENTICATION)), Some((500, "")), None] {
        let (address, server) = server(vec![first, Some((200, r#"{"jobs": []}"#))]);
        let count = std::fs::remove_file(dir.path().join("count"));
        assert_eq!(rest(address, &dir).jobs().expect("a list"), BTreeMap::new(), "{first:?} {count:?}");
        let asked = server.join().expect("the server");
        assert_eq!(asked, ["GET /slurm/v0.0.38/jobs/ token1", "GET /slurm/v0.0.38/jobs/ token2"], "{first:?}");
    }
    let (address, server) = server(vec![Some((500, AUTHENTICATION)); 2]);
    let error = rest(address, &dir).cancel(&[7], None).expect_err("it is refused");
    assert!(matches!(&error, LaunchError::Unavailable { what, .. } if what.contains("refuses the token")), "{error}");
    server.join().expect("the server");
}

#[test]
fn a_submission_is_not_repeated_unless_it_was_surely_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let submitted = include_str!("answers/v0.0.38/submitted.json");
    let (address, server_of_two) = server(vec![Some((500, AUTHENTICATION)), Some((200, submitted))]);
    assert_eq!(rest(address, &dir).submit(&Request::default()).expect("a job"), 24);
    assert_eq!(server_of_two.join().expect("the server").len(), 2);

    let (address, server_of_two) = server(vec![Some((500, EXPIRED_SUBMIT)), Some((200, r#"{"jobs": []}"#))]);
    let rest = rest(address, &dir);
    let error = rest.submit(&Request::default()).expect_err("it is not known");
    assert!(matches!(&error, LaunchError::Unavailable { what, .. } if what.contains("token")), "{error}");
    rest.jobs().expect("by the next token");
    let tokens = server_of_two.join().expect("the server");
    assert!(tokens[0].starts_with("POST") && tokens[1].starts_with("GET"), "{tokens:?}");
    assert_ne!(tokens[0].rsplit(' ').next(), tokens[1].rsplit(' ').next(), "it was renewed");
}

#[test]
fn commands_of_perhaps_another_cluster_are_not_used() {
    let dir = tempfile::tempdir().expect("a directory");
    let rest = rest(Address::Unix("/nonexistent".into()), &dir);
    rest.test(&Request { options: vec!["--nonsense".to_owned()], ..Request::default() }).expect("nothing is asked");
    let error = rest.kill_steps(7, &BTreeSet::from(["host-2".to_owned()]), None).expect_err("it cannot").to_string();
    assert!(error.contains("cannot end host-2 of job 7 alone: set conf"), "{error}");
}

#[test]
fn jobs_are_recognised_by_the_name_of_the_tokens_user() {
    let rest = |user: Option<&str>, token: &str| {
        let token = Some(Token::Command(vec!["/bin/echo".to_owned(), token.to_owned()]));
        let address = Address::Unix("/nonexistent".into());
        let options = RestOptions { address, version: Version::V38, user: user.map(str::to_owned), token };
        Rest::new(options, Commands::new("lab", None, Vec::new()))
    };
    // {"sun": "alice"}
    let token = "e30.eyJzdW4iOiJhbGljZSJ9.c2ln";
    assert_eq!(rest(None, token).name_of(None).as_deref(), Some("alice"));
    assert_eq!(rest(Some("ops"), token).name_of(None).as_deref(), Some("ops"));
    assert_eq!(rest(Some("ops"), token).name_of(Some("anna")).as_deref(), Some("anna"));
    assert_eq!(rest(None, "opaque").name_of(None), None);

    let cluster = |rest| crate::slurm::Cluster::of(crate::slurm::SlurmOptions::default(), Box::new(rest));
    let jobs = Answers { version: Version::V38 }.jobs(
        &serde_json::json!({"jobs": [{"job_id": 7, "job_state": "RUNNING", "name": "a", "user_name": "mallory"}]}),
    );
    let is_of = |rest, user: Option<&str>| {
        let user = user.map(str::to_owned);
        let submitted = crate::record::Submitted { id: 7, name: "a".to_owned(), hosts: BTreeSet::new(), user };
        cluster(rest).is_of(&submitted, &jobs[&7])
    };
    assert!(!is_of(rest(None, token), None) && !is_of(rest(None, token), Some("anna")));
    assert!(is_of(rest(Some("mallory"), token), None) && is_of(rest(None, token), Some("mallory")));
    assert_eq!(rest(None, token).user_of(&jobs[&7]).as_deref(), Some("mallory"));
    assert_eq!(rest(Some("mallory"), token).user_of(&jobs[&7]), None);
}
