use std::{fs, net::TcpStream as StdStream, os::unix::fs::PermissionsExt};

use rcgen::{CertificateParams, KeyPair};
use time::OffsetDateTime;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::*;

const DAY_S: u64 = 86_400;
const ID: &str = "0123456789abcdef";

fn address() -> SocketAddr {
    "127.0.0.1:9777".parse().unwrap()
}

/// A certificate for `name` that ends so many days after now, and its key.
fn pair(name: &str, days: i64) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let now = OffsetDateTime::from_unix_timestamp(i64::try_from(now_s()).unwrap()).unwrap();
    (params.not_before, params.not_after) = (now - time::Duration::days(100), now + time::Duration::days(days));
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// A connection's both ends.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// A client that trusts what is in a PEM file, and calls the server by a name.
async fn greet(door: &Door, trusted: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let (client, server) = connected().await;
    let (greeted, _) =
        tokio::join!(connector.connect(ServerName::try_from(name.to_owned()).unwrap(), client), door.meet(server));
    let greeted = greeted.map_err(|error| error.to_string())?;
    Ok(greeted.get_ref().1.peer_certificates().unwrap().to_vec())
}

#[tokio::test]
async fn a_self_made_certificate_is_for_this_machines_names_and_its_authority_stays() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("tls");
    let options = TlsOptions::SelfMade { names: vec!["box.example.org".to_owned(), "192.0.2.7".to_owned()] };
    let door = Door::open(&options, &dir, ID, address()).unwrap();
    let authority = door.authority().unwrap();
    for name in ["localhost", "127.0.0.1", "::1", "box.example.org", "192.0.2.7"] {
        greet(&door, &authority, name).await.unwrap();
    }
    let refused = greet(&door, &authority, "elsewhere.example.org").await.unwrap_err();
    assert!(refused.contains("not valid for name"), "{refused}");
    let mode = fs::metadata(dir.join("authority.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The next server has another certificate, which the same authority has signed.
    let before = fs::read(&authority).unwrap();
    let next = Door::open(&options, &dir, ID, address()).unwrap();
    assert_eq!(fs::read(&authority).unwrap(), before);
    let (first, second) =
        (greet(&door, &authority, "localhost").await.unwrap(), greet(&next, &authority, "localhost").await.unwrap());
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_self_made_certificate_is_renewed_and_so_is_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(&TlsOptions::SelfMade { names: Vec::new() }, dir.path(), ID, address()).unwrap();
    let authority = door.authority().unwrap();
    let first = greet(&door, &authority, "localhost").await.unwrap();
    door.look(now_s() + 59 * DAY_S);
    assert_eq!(greet(&door, &authority, "localhost").await.unwrap(), first);
    // A day of that lies before, so that it is valid now, too.
    door.look(now_s() + 61 * DAY_S);
    let renewed = door.shown.now().cert[0].clone();
    assert_ne!(renewed, first[0]);
    assert!(certificate::end_s(&renewed).unwrap() > now_s() + 150 * DAY_S);
    let known = fs::read(&authority).unwrap();
    SelfMade::open(dir.path(), ID, &["localhost".to_owned()], now_s() + 8 * 365 * DAY_S).unwrap();
    assert_eq!(fs::read(&authority).unwrap(), known);
    SelfMade::open(dir.path(), ID, &["localhost".to_owned()], now_s() + 9 * 365 * DAY_S + 10 * DAY_S).unwrap();
    assert_ne!(fs::read(&authority).unwrap(), known);
}

#[test]
fn an_authority_that_is_broken_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Door::open(&TlsOptions::SelfMade { names: Vec::new() }, dir.path(), ID, address()).map(drop);
    open().unwrap();
    for file in ["authority.key", "authority.pem"] {
        fs::write(dir.path().join(file), "").unwrap();
        open().unwrap();
        assert!(fs::metadata(dir.path().join(file)).unwrap().len() > 100, "{file}");
    }
}

#[test]
fn names_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = TlsOptions::SelfMade { names: vec!["https://box".to_owned()] };
    let error = Door::open(&options, dir.path(), ID, address()).map(drop).unwrap_err().to_string();
    assert!(error.contains("tls_names has \"https://box\""), "{error}");
}

#[test]
fn wrong_files_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("box.pem"), dir.path().join("box.key"));
    let (good, other) = (pair("localhost", 90), pair("localhost", 90));
    let encrypted = good.1.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let broken = good.0.replacen("MII", "AAA", 1);
    for (chain, private, expected) in [
        (good.0.as_str(), other.1.as_str(), "box.key does not belong to the certificate in"),
        ("", &good.1, "box.pem is no certificate: there is no `BEGIN CERTIFICATE` in it"),
        (&good.1, &good.1, "box.pem is no certificate"),
        (&broken, &good.1, "box.pem is no certificate"),
        (&good.0, "", "box.key is no private key: there is no `BEGIN PRIVATE KEY` in it"),
        (&good.0, &good.0, "box.key is no private key"),
        (&good.0, &encrypted, "box.key is no private key: it is encrypted"),
    ] {
        fs::write(&certificate, chain).unwrap();
        fs::write(&key, private).unwrap();
        let options = TlsOptions::Files { certificate: certificate.clone(), key: key.clone(), authority: None };
        let error = Door::open(&options, dir.path(), ID, address()).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::remove_file(&key).unwrap();
    let options = TlsOptions::Files { certificate, key, authority: None };
    let error = Door::open(&options, dir.path(), ID, address()).map(drop).unwrap_err().to_string();
    assert!(error.contains("could not read") && error.contains("box.key"), "{error}");
}

#[test]
fn the_end_of_a_certificate_is_told() {
    for (days, expected) in [(60, None), (10, Some("expires in ")), (-3, Some("has expired, 3 days ago"))] {
        let certificate = CertificateDer::from_pem_slice(pair("localhost", days).0.as_bytes()).unwrap();
        let complaint = certificate::complaint(&certificate, now_s());
        assert_eq!(complaint.is_some(), expected.is_some(), "{complaint:?}");
        assert!(complaint.unwrap_or_default().starts_with(expected.unwrap_or_default()));
    }
    let authority = tempfile::tempdir().unwrap();
    SelfMade::open(authority.path(), ID, &[], now_s()).unwrap();
    let certificate = CertificateDer::from_pem_file(authority.path().join("authority.pem")).unwrap();
    assert!(certificate::complaint(&certificate, now_s()).unwrap().contains("CA:TRUE"));
}

#[test]
fn clients_are_sent_to_a_name_that_the_certificate_has() {
    for (name, listen, expected) in [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1", "localhost"),
        ("localhost", "0.0.0.0", "localhost"),
        ("::1", "::1", "[::1]"),
        ("box.example.org", "0.0.0.0", "box.example.org"),
        ("localhost", "192.0.2.7", "localhost"),
        ("*.example.org", "192.0.2.7", "192.0.2.7"),
    ] {
        let certificate = CertificateDer::from_pem_slice(pair(name, 9).0.as_bytes()).unwrap();
        assert_eq!(certificate::host(&certificate, listen.parse().unwrap()), expected, "{name} at {listen}");
    }
}

#[tokio::test]
async fn files_that_change_are_shown_once_they_are_a_pair() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("box.pem"), dir.path().join("box.key"));
    let write = |(chain, private): &(String, String)| {
        fs::write(&certificate, chain).unwrap();
        fs::write(&key, private).unwrap();
    };
    write(&pair("localhost", 90));
    let options = TlsOptions::Files { certificate: certificate.clone(), key: key.clone(), authority: None };
    let door = Door::open(&options, dir.path(), ID, address()).unwrap();
    let shown = || door.shown.now().cert[0].clone();
    let (first, next) = (shown(), pair("localhost", 80));
    fs::write(&certificate, &next.0).unwrap();
    for _ in 0..3 {
        door.look(now_s());
        assert_eq!(shown(), first, "half of a change");
    }
    write(&next);
    door.look(now_s());
    assert_eq!(shown(), first, "not settled");
    door.look(now_s());
    assert_eq!(shown(), CertificateDer::from_pem_slice(next.0.as_bytes()).unwrap());
    greet(&door, &certificate, "localhost").await.unwrap();
    // What was wrong at first is looked at again, also if all that can be told is that its state
    // changed, as after chmod.
    let last = pair("localhost", 70);
    fs::write(&certificate, &last.0).unwrap();
    (0..3).for_each(|_| door.look(now_s()));
    let modified = fs::metadata(&key).unwrap().modified().unwrap();
    fs::write(&key, &last.1).unwrap();
    fs::File::options().write(true).open(&key).unwrap().set_modified(modified).unwrap();
    (0..2).for_each(|_| door.look(now_s()));
    assert_eq!(shown(), CertificateDer::from_pem_slice(last.0.as_bytes()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn half_a_handshake_ends() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(&TlsOptions::SelfMade { names: Vec::new() }, dir.path(), ID, address()).unwrap();
    for sent in [&[][..], &[0x16], &[0x16, 3, 1, 2, 0, 1, 0]] {
        let (mut client, server) = connected().await;
        client.write_all(sent).await.unwrap();
        let error = door.meet(server).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{sent:?}");
        assert_eq!(client.read(&mut [0; 8]).await.unwrap_or(0), 0, "the connection is closed");
    }
}

#[tokio::test]
async fn what_is_no_handshake_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let door = Door::open(&TlsOptions::SelfMade { names: Vec::new() }, dir.path(), ID, address()).unwrap();
    let (mut client, server) = connected().await;
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let Met::Plain(mut server) = door.meet(server).await.unwrap() else { panic!("TLS?") };
    let mut text = [0; 5];
    server.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"GET /");
    let (client, server) = connected().await;
    drop(client.into_std().map(|client: StdStream| client.shutdown(std::net::Shutdown::Both)));
    assert_eq!(door.meet(server).await.map(drop).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
