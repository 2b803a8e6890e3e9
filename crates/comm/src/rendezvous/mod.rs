//! How ranks find each other: a store to meet at, a handshake that keeps strangers out, and ports
//! at which they connect.

mod config;
mod door;
pub(crate) mod frame;
mod gather;
mod handshake;
mod job;
mod listening;
mod member;
mod owner;
mod store;
mod tcp_store;

pub use config::{Carrier, Config, LEAST_HEARTBEAT, MOST_RANKS, Meeting};
pub(crate) use door::{Door, Name, knock};
pub(crate) use gather::{STALL, gather};
pub(crate) use handshake::{Hello, Purpose, accept, connect, nonce};
pub use handshake::{PROTOCOL, Secret};
pub(crate) use member::{Member, host_identity, pid_namespace, rand_word, towards};
pub use store::{FileStore, LocalStore, Store};
pub use tcp_store::StoreServer;
pub(crate) use tcp_store::TcpStore;

/// For fuzzing: whatever bytes come, they are read or refused, and what was read can be said again;
/// and nobody who says them instead of his part of the handshake is let in. How many messages they
/// were.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_anything(bytes: &[u8]) -> usize {
    let mut count = 0;
    let secret = Secret::new("nobody guesses it");
    let says = handshake::Says;
    assert!(accept(&mut says(bytes), &secret, "a stranger").is_err(), "a stranger was let in");
    let hello = Hello { version: PROTOCOL, purpose: Purpose::Store, rank: 1, group: 2, epoch: 3, nonce: [4; 32] };
    assert!(connect(&mut says(bytes), &secret, &hello, "a stranger").is_err(), "a stranger was taken for a rank");
    let mut decoder = frame::Decoder::default();
    decoder.push(bytes);
    while let Ok(Some(frame)) = decoder.next() {
        if let Some(question) = tcp_store::Question::decode(&frame) {
            let mut again = frame::Decoder::default();
            again.push(&question.encode());
            let frame = again.next().expect("bounded").expect("whole");
            assert_eq!(tcp_store::Question::decode(&frame), Some(question), "what was read can be said");
            count += 1;
        }
    }
    if let Some(member) = Member::decode(bytes) {
        assert_eq!(Member::decode(&member.encode()), Some(member), "what was read can be said");
        count += 1;
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(hello) = Hello::decode(head)
    {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello), "what was read can be said");
        count += 1;
    }
    if let Some(head) = bytes.first_chunk()
        && let Ok(challenge) = handshake::Challenge::decode(head)
    {
        assert_eq!(challenge.encode(), *head, "what was read can be said");
        count += 1;
    }
    count
}
