//! Waiting for the ends of processes: the kernel reports them, nobody polls.

use std::{
    io::{self, PipeWriter},
    os::fd::OwnedFd,
    thread,
};

use rustix::event::{PollFd, PollFlags, poll};

/// Called with the host number of an instance whose process has ended. It must not block.
pub type OnEnd = Box<dyn Fn(u32) + Send>;

/// Ends of instances are reported for as long as this is there.
#[derive(Debug, Default)]
pub struct Watch {
    /// Closing it ends the thread.
    _stop: Option<PipeWriter>,
}

/// Reports the ends of these processes, by host number.
pub(crate) fn watch(running: Vec<(u32, OwnedFd)>, on_end: OnEnd) -> io::Result<Watch> {
    if running.is_empty() {
        return Ok(Watch::default());
    }
    let (stopped, stop) = io::pipe()?;
    let thread = thread::Builder::new().name("launch-watch".into()).stack_size(64 << 10);
    thread.spawn(move || wait(running, &stopped.into(), &on_end))?;
    Ok(Watch { _stop: Some(stop) })
}

fn wait(mut running: Vec<(u32, OwnedFd)>, stopped: &OwnedFd, on_end: &OnEnd) {
    while !running.is_empty() {
        let processes = running.iter().map(|(_, process)| PollFd::new(process, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = processes.chain([PollFd::new(stopped, PollFlags::IN)]).collect();
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            // The caller asks for the status from time to time as well.
            Err(_) => return,
            Ok(_) => {}
        }
        let mut ready = polled.iter().map(|it| !it.revents().is_empty()).collect::<Vec<_>>().into_iter();
        if ready.next_back() == Some(true) {
            return;
        }
        running.retain(|(host, _)| {
            let is_ended = ready.next() == Some(true);
            if is_ended {
                on_end(*host);
            }
            !is_ended
        });
    }
}
