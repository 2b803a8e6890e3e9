//! A port and the thread that takes its connections, until it is dropped.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The open port. Dropping it closes it and waits for the thread.
#[derive(Debug)]
pub(super) struct Listening {
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Gives each connection to `serve`, in a thread of that name. `closing` becomes true before
    /// the port closes.
    pub(super) fn start(
        listener: TcpListener,
        name: &str,
        closing: &Arc<AtomicBool>,
        mut serve: impl FnMut(TcpStream, SocketAddr) + Send + 'static,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let thread = thread::Builder::new().name(name.to_owned()).spawn({
            let closing = Arc::clone(closing);
            move || loop {
                let accepted = listener.accept();
                if closing.load(Ordering::Acquire) {
                    return;
                }
                match accepted {
                    Ok((stream, from)) => serve(stream, from),
                    // Out of descriptors, or a connection that was reset before it was taken.
                    Err(_) => thread::sleep(Duration::from_millis(10)),
                }
            }
        })?;
        Ok(Self { address, closing: Arc::clone(closing), thread: Some(thread) })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // The thread sleeps in accept: a connection wakes it.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                IpAddr::from([127, 0, 0, 1])
            } else {
                IpAddr::V6(Ipv6Addr::LOCALHOST)
            });
        }
        drop(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
