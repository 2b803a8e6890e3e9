//! Objects stream in bounded memory. Alone in its binary, since the process's peak is what is
//! measured.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use support::Server;

/// Peak of this process's resident memory, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn large_objects_stream() {
    let server = Server::start();
    if !server.check("client.py", "warm_up") {
        return;
    }
    let before = peak();
    // 200 MB in one piece, up, copied and down again.
    server.check("client.py", "large_object");
    let grown = peak() - before;
    assert!(grown < 64 << 20, "the server grew by {grown} bytes");
    assert_eq!(server.object_files(), 3, "small, large and its copy");
}
