//! Who may talk to us: a challenge both ways over a shared secret, and a check of versions, before
//! anything else is read.
//!
//! The side that connects says hello with a nonce; the other answers with its own. Then each proves
//! by HMAC-SHA256 over both that it has the secret, the one that connected first, so that a port
//! scan learns nothing. The secret itself is never sent. What follows on the connection is neither
//! encrypted nor signed: whoever can change packets on the way is not kept out.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Read, Write};

use crate::Error;

/// Version of everything that goes over connections between ranks. Ranks with different ones do not
/// talk.
pub const PROTOCOL: u16 = 2;

const MAGIC: [u8; 8] = *b"shoalcom";

/// Bytes of a [`Hello`] on the wire.
pub(crate) const HELLO_BYTES: usize = 8 + 2 + 1 + 1 + 4 + 8 + 8 + 32;
/// Bytes of a [`Challenge`] on the wire.
pub(crate) const CHALLENGE_BYTES: usize = 8 + 2 + 32;
const PROOF_BYTES: usize = 32;

/// What the group's members share. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of these bytes. An empty one keeps nobody out; see [`Config`](super::Config).
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn sign(&self, role: &[u8], hello: &[u8], challenge: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [role, hello, challenge] {
            mac.update(part);
        }
        mac
    }

    fn proof(&self, role: &[u8], hello: &[u8], challenge: &[u8]) -> [u8; PROOF_BYTES] {
        self.sign(role, hello, challenge).finalize().into_bytes().into()
    }

    fn proves(&self, role: &[u8], hello: &[u8], challenge: &[u8], proof: &[u8]) -> bool {
        self.sign(role, hello, challenge).verify_slice(proof).is_ok()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

const CLIENT: &[u8] = b"shoal-comm: the side that connected";
const SERVER: &[u8] = b"shoal-comm: the side that listened";

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Questions to the store of the rendezvous.
    Store = 1,
    /// Heartbeats, failures and agreement between two ranks.
    Control = 2,
    /// Collective operations between two ranks.
    Data = 3,
    /// Messages from one rank to another.
    Messages = 4,
    /// Descriptors of shared memory, over a Unix socket.
    Memory = 5,
    /// A control connection to a replacement, from the rank that takes it in.
    Lead = 6,
}

impl Purpose {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Store, Self::Control, Self::Data, Self::Messages, Self::Memory, Self::Lead]
            .into_iter()
            .find(|purpose| *purpose as u8 == byte)
    }
}

/// The first message, from the side that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// [`PROTOCOL`] of the sender.
    pub(crate) version: u16,
    /// What the connection is for.
    pub(crate) purpose: Purpose,
    /// Rank of the sender when the group was first formed.
    pub(crate) rank: u32,
    /// Which group: a number that its first rank drew.
    pub(crate) group: u64,
    /// Which formation of it.
    pub(crate) epoch: u64,
    /// Random.
    pub(crate) nonce: [u8; 32],
}

impl Hello {
    /// As it goes over the wire.
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[10] = self.purpose as u8;
        out[12..16].copy_from_slice(&self.rank.to_le_bytes());
        out[16..24].copy_from_slice(&self.group.to_le_bytes());
        out[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        out[32..].copy_from_slice(&self.nonce);
        out
    }

    /// Reads one. A sender of another version is told apart by that alone: the rest of its message
    /// may mean anything.
    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, NotHello> {
        if bytes[..8] != MAGIC {
            return Err(NotHello::Stranger);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != PROTOCOL {
            return Err(NotHello::Version(version));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Self {
            version,
            purpose: Purpose::from_byte(bytes[10]).ok_or(NotHello::Stranger)?,
            rank: u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")),
            group: word(16),
            epoch: word(24),
            nonce: bytes[32..].try_into().expect("32 bytes"),
        })
    }
}

/// Why a first message is not a [`Hello`] that we understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHello {
    /// Not from this library at all.
    Stranger,
    /// From another version of it.
    Version(u16),
}

/// The answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// [`PROTOCOL`] of the sender.
    pub(crate) version: u16,
    /// Random.
    pub(crate) nonce: [u8; 32],
}

impl Challenge {
    /// As it goes over the wire.
    pub(crate) fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut out = [0; CHALLENGE_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.version.to_le_bytes());
        out[10..].copy_from_slice(&self.nonce);
        out
    }

    /// Reads one; the same rules as [`Hello::decode`].
    pub(crate) fn decode(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Self, NotHello> {
        if bytes[..8] != MAGIC {
            return Err(NotHello::Stranger);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != PROTOCOL {
            return Err(NotHello::Version(version));
        }
        Ok(Self { version, nonce: bytes[10..].try_into().expect("32 bytes") })
    }
}

const WELCOME: u8 = 0;
const WRONG_SECRET: u8 = 1;

/// 32 random bytes.
pub(crate) fn nonce() -> Result<[u8; 32], Error> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce)
        .map_err(|error| Error::io("draw random bytes for a handshake", io::Error::other(error)))?;
    Ok(nonce)
}

/// The connecting side's part. `peer` is for messages: whom we connected to.
pub(crate) fn connect(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    hello: &Hello,
    peer: &str,
) -> Result<(), Error> {
    let lost = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::rendezvous(format!(
            "{peer} took the connection and did not answer the handshake: is it a rank of this group, and is it \
             running (not stopped)?"
        )),
        _ => Error::io(format!("shake hands with {peer}"), error),
    };
    let said = hello.encode();
    stream.write_all(&said).map_err(lost)?;
    let mut answer = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut answer).map_err(lost)?;
    Challenge::decode(&answer).map_err(|not| refusal(not, peer))?;
    stream.write_all(&secret.proof(CLIENT, &said, &answer)).map_err(lost)?;
    let mut verdict = [0; 1];
    stream.read_exact(&mut verdict).map_err(lost)?;
    if verdict[0] != WELCOME {
        return Err(Error::secret(peer));
    }
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).map_err(lost)?;
    if secret.proves(SERVER, &said, &answer, &proof) { Ok(()) } else { Err(Error::secret(peer)) }
}

/// The listening side's part: who is there, and what for.
pub(crate) fn accept(stream: &mut (impl Read + Write), secret: &Secret, peer: &str) -> Result<Hello, Error> {
    let lost = |error: io::Error| Error::io(format!("shake hands with {peer}"), error);
    let mut said = [0; HELLO_BYTES];
    stream.read_exact(&mut said).map_err(lost)?;
    let hello = Hello::decode(&said);
    let answer = Challenge { version: PROTOCOL, nonce: nonce()? }.encode();
    if !matches!(hello, Err(NotHello::Stranger)) {
        // Another version learns ours from this.
        stream.write_all(&answer).map_err(lost)?;
    }
    let hello = hello.map_err(|not| refusal(not, peer))?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).map_err(lost)?;
    if !secret.proves(CLIENT, &said, &answer, &proof) {
        stream.write_all(&[WRONG_SECRET]).map_err(lost)?;
        return Err(Error::secret(peer));
    }
    let mut last = [WELCOME; 1 + PROOF_BYTES];
    last[1..].copy_from_slice(&secret.proof(SERVER, &said, &answer));
    stream.write_all(&last).map_err(lost)?;
    Ok(hello)
}

fn refusal(not: NotHello, peer: &str) -> Error {
    match not {
        NotHello::Version(theirs) => Error::Version { peer: peer.to_owned(), ours: PROTOCOL, theirs },
        NotHello::Stranger => Error::rendezvous(format!(
            "{peer} does not speak this library's protocol: another program has that address. Check MASTER_ADDR and \
             MASTER_PORT, \
             which must be the same on all ranks and belong to nobody else"
        )),
    }
}

/// For fuzzing: the other side, which says these bytes whatever it hears.
#[cfg(feature = "fuzzing")]
pub(super) struct Says<'a>(pub(super) &'a [u8]);

#[cfg(feature = "fuzzing")]
impl Read for Says<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

#[cfg(feature = "fuzzing")]
impl Write for Says<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn hello(nonce: u8) -> Hello {
        Hello { version: PROTOCOL, purpose: Purpose::Control, rank: 3, group: 7, epoch: 2, nonce: [nonce; 32] }
    }

    fn shake(ours: &str, theirs: &str) -> (Result<(), Error>, Result<Hello, Error>) {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let theirs = Secret::new(theirs);
        let server = thread::spawn(move || accept(&mut b, &theirs, "the other"));
        let client = connect(&mut a, &Secret::new(ours), &hello(9), "the one");
        (client, server.join().unwrap())
    }

    #[test]
    fn equal_secrets_meet_and_others_do_not() {
        let (client, server) = shake("s3cret", "s3cret");
        client.unwrap();
        assert_eq!(server.unwrap(), hello(9));
        let (client, server) = shake("s3cret", "other");
        assert!(matches!(client, Err(Error::Secret { .. })), "{client:?}");
        assert!(matches!(server, Err(Error::Secret { .. })), "{server:?}");
        assert!(client.unwrap_err().to_string().contains("SHOAL_COMM_SECRET"));
    }

    #[test]
    fn a_listener_without_the_secret_is_found_out() {
        // It takes any proof, and cannot make its own.
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || {
            let mut said = [0; HELLO_BYTES];
            b.read_exact(&mut said).unwrap();
            b.write_all(&Challenge { version: PROTOCOL, nonce: [1; 32] }.encode()).unwrap();
            let mut proof = [0; PROOF_BYTES];
            b.read_exact(&mut proof).unwrap();
            // The client's own proof back: roles differ, so that it does not pass.
            let mut last = vec![WELCOME];
            last.extend(proof);
            b.write_all(&last).unwrap();
        });
        let client = connect(&mut a, &Secret::new("s3cret"), &hello(1), "the one");
        server.join().unwrap();
        assert!(matches!(client, Err(Error::Secret { .. })), "{client:?}");
    }

    #[test]
    fn versions_are_named_on_both_sides() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || accept(&mut b, &Secret::new("x"), "an old rank"));
        let mut said = hello(1).encode();
        said[8] = 9;
        a.write_all(&said).unwrap();
        let mut answer = [0; CHALLENGE_BYTES];
        a.read_exact(&mut answer).unwrap();
        assert_eq!(Challenge::decode(&answer).unwrap().version, PROTOCOL);
        let error = server.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("version 9") && error.contains("an old rank"), "{error}");
        answer[8] = 7;
        assert_eq!(Challenge::decode(&answer), Err(NotHello::Version(7)));
        assert_eq!(Hello::decode(&[b'G'; HELLO_BYTES]), Err(NotHello::Stranger));
    }

    #[test]
    fn a_secret_is_never_printed() {
        assert_eq!(format!("{:?} {:?}", Secret::new("abc"), Secret::new("")), "Secret(..) Secret(none)");
    }
}
