//! The bucket against an S3 server of other people: s3s-fs.

use std::io::Write;
use std::net::TcpListener;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;
use shoal_elsewhere::{Address, Bucket, Condition, Error};

/// A server on a free port, in threads that end with the test.
fn server(root: &std::path::Path) -> String {
    std::fs::create_dir(root.join("team")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut builder = S3ServiceBuilder::new(FileSystem::new(root).unwrap());
    builder.set_auth(SimpleAuth::from_single("AK", "SK"));
    let service = builder.build();
    std::thread::spawn(move || {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let http = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away is no matter.
                    let _ = http.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
    });
    format!("http://{address}")
}

#[test]
fn objects_go_there_and_come_back() {
    let temp = tempfile::tempdir().unwrap();
    let disk = temp.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let endpoint = server(&disk);
    let open = |rest: &str, secret: &str| {
        let address = Address::parse(&format!("s3://{rest}?endpoint={endpoint}")).unwrap();
        Bucket::with_keys(&address, "AK", secret).unwrap()
    };
    let bucket = open("team/shoal/one", "SK");

    assert!(bucket.get("a").unwrap().is_none());
    bucket.put("a", b"first".to_vec(), &Condition::Absent).unwrap();
    assert!(matches!(bucket.put("a", b"second".to_vec(), &Condition::Absent), Err(Error::Changed { .. })));
    assert_eq!(bucket.get("a").unwrap().unwrap().0, b"first");
    assert_eq!(bucket.get_range("a", 1, 3).unwrap(), b"irs");
    assert!(matches!(bucket.get_range("none", 0, 1), Err(Error::Missing { .. })));

    // Three parts and a bit, from the middle of a file; many small ones beside it.
    let long: Vec<u8> = (0..25_000_000_u32).map(|at| (at % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&long).unwrap();
    let mut files = vec![("b/long".to_owned(), file.try_clone().unwrap(), 1000, 24_999_000)];
    files.extend((0..40).map(|number| (format!("b/{number:02}"), file.try_clone().unwrap(), number, 100)));
    assert_eq!(bucket.put_files(files).unwrap(), 24_999_000 + 4000);
    let listed = bucket.list("b").unwrap();
    assert_eq!((listed.len(), listed["b/long"], listed["b/39"]), (41, 24_999_000, 100));
    let back = tempfile::NamedTempFile::new().unwrap();
    assert_eq!(bucket.fetch("b/long", back.as_file(), 10).unwrap(), Some(24_999_000));
    assert!(std::fs::read(back.path()).unwrap()[10..] == long[1000..]);
    assert_eq!(bucket.fetch("b/none", back.as_file(), 0).unwrap(), None);

    bucket.remove(&["b/long".to_owned(), "b/00".to_owned(), "b/none".to_owned()]).unwrap();
    assert_eq!(bucket.list("").unwrap().len(), 40);
    assert_eq!(open("team", "SK").list("").unwrap().len(), 40, "names of a whole bucket have the prefix");

    let error = open("team", "wrong").get("a").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    // A server that refuses connections is tried again for a while.
    let nobody = Address::parse("s3://b?endpoint=http://127.0.0.1:1").unwrap();
    let error = Bucket::with_keys(&nobody, "AK", "SK").unwrap().get("a").unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}
