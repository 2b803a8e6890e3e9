//! Answers of stores that are not as they should be.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Address, Bucket, BucketAsIs, Condition, Error, NewObject};

/// A store that gives these answers, one on each connection, each after a time.
fn store(answers: Vec<(Duration, String)>) -> BucketAsIs {
    BucketAsIs::open_with_keys(&address(answers), Duration::from_millis(100)).unwrap()
}

fn address(answers: Vec<(Duration, String)>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("s3://team?endpoint=http://{}&region=eu-1", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (time, answer) in answers {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            thread::sleep(time);
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    Address::parse(&address).unwrap()
}

fn answer(status: &str, headers: &str, body: &str) -> (Duration, String) {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    (Duration::ZERO, head)
}

fn text<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn contents_that_are_not_those_that_were_asked_for() {
    let file = tempfile::tempfile().unwrap();
    let fetch = |bucket: &BucketAsIs| bucket.fetch("k", "", 4, &file, &|| false);
    assert!(text(fetch(&store(vec![answer("200 OK", "", "longer")]))).contains("longer than the object was"));
    let short = vec![answer("200 OK", "", "ab"), answer("206 Partial Content", "", "cd")];
    fetch(&store(short)).unwrap();
    // Without ranges.
    let whole = || store(vec![answer("200 OK", "", "0123456789")]);
    assert_eq!(&whole().read("k", "", 3, 4).unwrap()[..], b"3456");
    assert!(text(whole().read("k", "", 8, 4)).contains("as many bytes"));
    let bare = "HTTP/1.1 200 OK\r\nconnection: close\r\netag: \"e\"\r\n\r\n".to_owned();
    assert!(text(store(vec![(Duration::ZERO, bare)]).head("k")).contains("Content-Length"));
}

#[test]
fn lists_and_errors_without_an_end() {
    let page = "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>";
    let list = store(vec![answer("200 OK", "", page)]).list("", None, None, 10);
    assert!(text(list).contains("it promises more"));
    // It promises a page, and does not give it.
    let endless = "HTTP/1.1 403 Forbidden\r\ncontent-length: 9999999999\r\n\r\n";
    let error = store(vec![(Duration::ZERO, format!("{endless}{}", "x".repeat(100_000)))]).list("", None, None, 10);
    assert!(matches!(error, Err(Error::Refused { .. })), "{error:?}");
}

#[test]
fn what_took_long_to_send_is_sent_again() {
    let lost = (Duration::from_millis(300), String::new());
    let bucket = store(vec![lost, answer("200 OK", "etag: \"e\"\r\n", "")]);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"text").unwrap();
    let headers = BTreeMap::new();
    let object = NewObject { key: "k", headers: &headers, file, size: 4, condition: &Condition::Always };
    assert_eq!(bucket.put(object).unwrap(), "e");
}

#[test]
fn a_fetch_is_cancelled_while_the_store_is_silent() {
    let bucket = store(vec![(Duration::from_secs(20), String::new())]);
    let began = Instant::now();
    let fetched = bucket.fetch("k", "", 4, &tempfile::tempfile().unwrap(), &|| true);
    assert!(matches!(fetched, Err(Error::Cancelled { .. })) && began.elapsed() < Duration::from_secs(5));
}

#[test]
fn an_upload_that_may_not_be_aborted_is_left() {
    let refused = answer("403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>");
    let gone = answer("404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>");
    let failed = answer("400 Bad Request", "", "<Error><Code>InvalidArgument</Code></Error>");
    let bucket = Bucket::open_with_keys(&address(vec![refused, gone, failed]), Duration::from_millis(100)).unwrap();
    assert!(!bucket.abort_upload("k", "1").unwrap());
    assert!(bucket.abort_upload("k", "2").unwrap());
    assert!(text(bucket.abort_upload("k", "3")).contains("InvalidArgument"));
}
