//! Callers of the agents' socket who have not said who they are: few, for a short time, in few
//! bytes.

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use shoal_link::{Decoder, Frame, ToServer};

/// Connections whose caller has not shown an attempt's token yet. More are closed; agents call
/// again.
const MAX_STRANGERS: usize = 256;
/// How long and how many bytes a caller has for its first message.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HELLO_BYTES: usize = 64 << 10;

/// One of [`MAX_STRANGERS`], until it is dropped.
pub(crate) struct Stranger(Arc<AtomicUsize>);

impl Stranger {
    /// Counts one more; none if there are too many.
    pub(super) fn count(all: &Arc<AtomicUsize>) -> Option<Self> {
        let counted =
            all.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < MAX_STRANGERS).then_some(count + 1));
        counted.is_ok().then(|| Self(all.clone()))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The first message of a caller, within a time and a length that are far more than an agent needs;
/// with what came behind it.
pub(super) fn first_message(stream: &mut UnixStream, within: Duration) -> io::Result<(ToServer, Decoder)> {
    let until = Instant::now() + within;
    let mut decoder = Decoder::default();
    let mut received = 0;
    loop {
        match decoder.next::<ToServer>().map_err(io::Error::other)? {
            Some(Frame::Message(message)) => return Ok((message, decoder)),
            Some(_) => return Err(io::Error::other("the first message is not hello")),
            None => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || received > MAX_HELLO_BYTES {
            return Err(io::Error::other(format!(
                "no first message within {} s and {MAX_HELLO_BYTES} bytes",
                within.as_secs()
            )));
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                received += read;
                decoder.push(&buffer[..read]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn callers_who_do_not_say_who_they_are_are_few_and_short() {
        let all = Arc::new(AtomicUsize::new(0));
        let mut strangers: Vec<_> = (0..MAX_STRANGERS).map(|_| Stranger::count(&all).unwrap()).collect();
        assert!(Stranger::count(&all).is_none());
        strangers.pop();
        assert!(Stranger::count(&all).is_some());
        let (mut inside, mut outside) = UnixStream::pair().unwrap();
        // A byte now and then does not prolong it.
        let dripping = thread::spawn(move || {
            while io::Write::write_all(&mut outside, &[1]).is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(first_message(&mut inside, Duration::from_millis(200)).is_err());
        drop(inside);
        dripping.join().unwrap();
        let (mut inside, mut outside) = UnixStream::pair().unwrap();
        let endless = thread::spawn(move || {
            let length = u32::try_from(shoal_link::MAX_FRAME_BYTES).unwrap();
            let all = [&length.to_le_bytes()[..], &vec![b' '; 4 * MAX_HELLO_BYTES]].concat();
            drop(io::Write::write_all(&mut outside, &all));
        });
        assert!(first_message(&mut inside, Duration::from_secs(60)).is_err(), "long before a frame's greatest length");
        drop(inside);
        endless.join().unwrap();
    }
}
