//! The connections that are open, and which of them is closed when all places are taken: first one
//! on which nothing was signed yet, the oldest, then one of a job's program, then an idle one of
//! the owner. A request of the owner that is being answered is never cut off, so strangers who hold
//! connections only hold each other's, and the owner's next request finds a place.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    task::AbortHandle,
    time::{Sleep, sleep},
};

/// Bytes of a request's head. One read of a longer request may go beyond it.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long a client may take no byte of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Who has signed a request on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signer {
    /// Nobody yet.
    Nobody,
    /// A training job's program.
    Job,
    /// The owner, by keys, a role's keys or the console's cookie.
    Owner,
}

/// The order in which connections are closed for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    signer: Signer,
    /// A request that the owner signed is being answered. Requests of jobs and of strangers protect
    /// nothing.
    is_protected: bool,
    number: u64,
}

#[derive(Default)]
struct Open {
    ranks: BTreeSet<Rank>,
    tasks: HashMap<u64, AbortHandle>,
    last: u64,
}

/// All open connections of a listener.
pub(crate) struct Connections {
    places: usize,
    open: Mutex<Open>,
    freed: Notify,
}

impl Connections {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, open: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a place, closing another connection if all are taken; waits only while every one
    /// answers the owner.
    pub(crate) async fn admit(self: &Arc<Self>) -> Arc<Connection> {
        loop {
            let freed = self.freed.notified();
            if let Some(connection) = self.try_admit() {
                return connection;
            }
            freed.await;
        }
    }

    fn try_admit(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let mut open = self.open();
        if open.ranks.len() >= self.places {
            let first = *open.ranks.first().filter(|rank| !rank.is_protected)?;
            open.ranks.remove(&first);
            if let Some(task) = open.tasks.remove(&first.number) {
                task.abort();
            }
            tracing::debug!(
                "all {} connections are taken: one of {:?} is closed for the next",
                self.places,
                first.signer
            );
        }
        open.last += 1;
        let rank = Rank { signer: Signer::Nobody, is_protected: false, number: open.last };
        open.ranks.insert(rank);
        Some(Arc::new(Connection {
            all: self.clone(),
            rank: Mutex::new(rank),
            is_answering: AtomicBool::new(false),
            head_bytes: AtomicUsize::new(0),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().expect("no holder of this lock panics")
    }
}

/// One connection, for as long as it is open.
pub(crate) struct Connection {
    all: Arc<Connections>,
    rank: Mutex<Rank>,
    is_answering: AtomicBool,
    /// Bytes read since the last request's head.
    head_bytes: AtomicUsize,
}

impl Connection {
    /// Says which task serves the connection, so that it can be ended.
    pub(crate) fn is_served_by(&self, task: AbortHandle) {
        let mut open = self.all.open();
        let rank = *self.rank();
        if open.ranks.contains(&rank) {
            open.tasks.insert(rank.number, task);
        } else {
            task.abort();
        }
    }

    /// A request's head is there, and its answer is being made until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Answering {
        self.is_answering.store(true, Ordering::Release);
        Answering(self.clone())
    }

    /// A signature of this signer was verified in the request that is being answered. A connection
    /// keeps the highest.
    pub(crate) fn signed(&self, signer: Signer) {
        self.change(|rank| {
            rank.signer = rank.signer.max(signer);
            rank.is_protected = rank.signer == Signer::Owner;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Rank)) {
        let mut open = self.all.open();
        let mut rank = self.rank();
        let was_open = open.ranks.remove(&rank);
        change(&mut rank);
        if was_open {
            open.ranks.insert(*rank);
            if !rank.is_protected {
                self.all.freed.notify_one();
            }
        }
    }

    fn rank(&self) -> MutexGuard<'_, Rank> {
        self.rank.lock().expect("no holder of this lock panics")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let rank = *self.rank();
        let mut open = self.all.open();
        open.ranks.remove(&rank);
        open.tasks.remove(&rank.number);
        drop(open);
        self.all.freed.notify_one();
    }
}

/// See [`Connection::begin`].
pub(crate) struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.head_bytes.store(0, Ordering::Release);
        self.0.is_answering.store(false, Ordering::Release);
        if self.0.rank().is_protected {
            self.0.change(|rank| rank.is_protected = false);
        }
    }
}

/// A socket that ends when a client sends a head without end, or takes nothing of an answer for a
/// minute.
pub(crate) struct Paced<S> {
    stream: S,
    connection: Arc<Connection>,
    write_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, write_timeout: WRITE_TIMEOUT, stalled: None }
    }

    /// What a write has come to; an error if it has stood still for too long.
    fn written<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let most = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(most)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_head = !self.connection.is_answering.load(Ordering::Acquire);
        if is_head && self.connection.head_bytes.load(Ordering::Acquire) > MAX_HEAD_BYTES {
            return Poll::Ready(Err(io::Error::other(format!(
                "a request's head is longer than {MAX_HEAD_BYTES} bytes"
            ))));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if is_head {
            self.connection.head_bytes.fetch_add(buffer.filled().len() - before, Ordering::AcqRel);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.written(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(polled, context)
    }
}

#[cfg(test)]
mod tests;
