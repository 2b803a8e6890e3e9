use super::*;
use shoal_link::NetworkMode;
use std::io::Read;

/// A server on an address of the machine that answers with what it was sent, and where the proxy
/// for these entries listens.
struct Stage {
    server: SocketAddr,
    proxy: SocketAddr,
    outbox: Arc<Outbox>,
    _dir: tempfile::TempDir,
}

fn stage(mode: NetworkMode, entries: impl FnOnce(SocketAddr) -> Vec<String>, is_own_server: bool) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let outbox = Arc::new(Outbox::create(&dir.path().join("spool"), 1 << 20).unwrap());
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let server = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut bytes) = (stream.unwrap(), Vec::new());
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&[b"got ", &bytes[..]].concat()).unwrap();
        }
    });
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = inside.local_addr().unwrap();
    let own = is_own_server.then(|| format!("127.0.0.1:{}", server.port()));
    start(inside, &Egress { mode, allow: entries(server) }, own.as_deref(), outbox.clone()).unwrap();
    Stage { server, proxy, outbox, _dir: dir }
}

fn listed(server: SocketAddr) -> Vec<String> {
    vec![server.to_string()]
}

impl Stage {
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        stream.write_all(request.replace("SERVER", &self.server.to_string()).as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Notes for the job's log.
    fn notes(&self) -> String {
        let mut buffer = vec![0; 1 << 16];
        let position = self.outbox.connect(0);
        let count = self.outbox.next(position, &mut buffer, Duration::ZERO).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }
}

#[test]
fn listed_hosts_are_reached_by_both_kinds_of_requests() {
    let stage = stage(NetworkMode::AllowList, listed, false);
    assert_eq!(
        stage.ask("CONNECT SERVER HTTP/1.1\r\n\r\nhello"),
        "HTTP/1.1 200 Connection established\r\n\r\ngot hello"
    );
    let plain = stage.ask("GET http://SERVER/path HTTP/1.1\r\nAccept: */*\r\n\r\n");
    let server = stage.server;
    assert_eq!(plain, format!("got GET /path HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nAccept: */*\r\n\r\n"));
    assert_eq!(stage.notes(), "");
}

#[test]
fn all_others_are_refused_and_noted_once() {
    let stage = stage(NetworkMode::AllowList, |_| vec!["pypi.org".to_owned()], false);
    for _ in 0..2 {
        let answer = stage.ask("CONNECT example.com:443 HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 403 example.com:443 is not in network_allow\r\n"), "{answer}");
    }
    let machine = stage.ask("CONNECT SERVER HTTP/1.1\r\n\r\n");
    assert!(machine.starts_with("HTTP/1.1 403 127.0.0.2:"), "{machine}");
    assert!(stage.ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 this is an HTTP proxy"));
    let notes = stage.notes();
    assert_eq!(notes.matches("example.com:443 is not in network_allow").count(), 1, "{notes}");
}

#[test]
fn an_open_network_does_not_lead_back_to_the_machine() {
    let closed = stage(NetworkMode::Host, |_| Vec::new(), false);
    assert!(closed.ask("CONNECT SERVER HTTP/1.1\r\n\r\n").contains("403 127.0.0.2:"));
    assert!(
        closed
            .ask("CONNECT localhost:22 HTTP/1.1\r\n\r\n")
            .contains("403 localhost:22 leads to the server's own machine")
    );
    let opened = stage(NetworkMode::Host, listed, false);
    assert!(opened.ask("CONNECT SERVER HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    let is_the_server = stage(NetworkMode::Host, listed, true);
    assert!(is_the_server.ask("CONNECT SERVER HTTP/1.1\r\n\r\n").contains("is this server"));
}

#[test]
fn a_name_that_has_no_address_says_so() {
    let stage = stage(NetworkMode::AllowList, |_| vec!["nowhere.invalid".to_owned()], false);
    let answer = stage.ask("CONNECT nowhere.invalid:443 HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 502 nowhere.invalid:443 cannot be resolved"), "{answer}");
}
