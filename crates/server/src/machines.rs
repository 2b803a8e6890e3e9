//! The way to the machines of [`shoal_runtime`]: what happens is sent to the task that drives them.

use shoal_runtime::{lanes, warm_pool};
use tokio::sync::{mpsc, oneshot};

/// Of one of the machines.
#[derive(Debug)]
pub(crate) enum Event {
    Lane(lanes::Event),
    Pool(warm_pool::Event),
    Timeout,
}

impl From<lanes::Event> for Event {
    fn from(event: lanes::Event) -> Self {
        Self::Lane(event)
    }
}

impl From<warm_pool::Event> for Event {
    fn from(event: warm_pool::Event) -> Self {
        Self::Pool(event)
    }
}

/// An event, and who waits until what follows from it directly is done.
pub(crate) type Message = (Event, Option<oneshot::Sender<()>>);

/// The way to the task.
#[derive(Clone)]
pub(crate) struct Machines(mpsc::UnboundedSender<Message>);

impl Machines {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, event: impl Into<Event>) {
        // Without a receiver the server is stopping.
        let _ = self.0.send((event.into(), None));
    }

    /// The same, and waits until what follows from it directly is done.
    pub(crate) async fn send_and_wait(&self, event: impl Into<Event>) {
        let (done, settled) = oneshot::channel();
        // Without a receiver the server is stopping.
        let _ = self.0.send((event.into(), Some(done)));
        let _ = settled.await;
    }
}
