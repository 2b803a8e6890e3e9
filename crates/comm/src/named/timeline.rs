//! Horovod's timeline: a Chrome trace with a line of phases for each tensor. The file is whole
//! after each cycle: a rank that hangs or is killed leaves what it was in.

use std::{
    collections::HashMap,
    fs::File,
    io::{Seek, SeekFrom, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use crate::Error;

/// Ends the file; the next events are written over it.
const END: &str = "\n]\n";

/// The trace file, if one is being written.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    active: AtomicBool,
    file: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Events that are not in the file yet.
    pending: String,
    begun: Instant,
    mark_cycles: bool,
    /// Lines by the name of the tensor.
    lines: HashMap<String, usize>,
    is_first: bool,
}

impl Timeline {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a trace is being written: one atomic load.
    pub(super) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Begins a file; the one before ends.
    pub(super) fn start(&self, path: &str, mark_cycles: bool) -> Result<(), Error> {
        self.stop();
        let file = File::create(path).map_err(|error| Error::io(format!("write the timeline {path}"), error))?;
        let mut open = Open {
            file,
            pending: String::new(),
            begun: Instant::now(),
            mark_cycles,
            lines: HashMap::new(),
            is_first: true,
        };
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        open.write(&format!(
            r#"{{"name":"start_time_since_epoch_in_micros","ph":"M","pid":0,"args":{{"start_time_since_epoch_in_micros":{epoch}}}}}"#
        ));
        open.flush();
        *self.lock() = Some(open);
        self.active.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the trace.
    pub(super) fn stop(&self) {
        self.active.store(false, Ordering::Relaxed);
        if let Some(mut open) = self.lock().take() {
            open.flush();
        }
    }

    /// Puts the events into the file.
    pub(super) fn flush(&self) {
        if let Some(open) = &mut *self.lock() {
            open.flush();
        }
    }

    /// A phase of a tensor begins. `label`: as [`label`] has it.
    pub(super) fn begin(&self, label: &str, phase: &str) {
        self.event(label, "B", phase, "");
    }

    /// The tensor's innermost phase ends.
    pub(super) fn end(&self, label: &str, phase: &str) {
        self.event(label, "E", phase, "");
    }

    /// A rank has announced the tensor's operation.
    pub(super) fn tick(&self, label: &str, rank: usize) {
        self.event(label, "X", &rank.to_string(), ",\"dur\":0");
    }

    /// A cycle of negotiation begins.
    pub(super) fn cycle(&self) {
        if let Some(open) = &mut *self.lock()
            && open.mark_cycles
        {
            let at = open.begun.elapsed().as_micros();
            open.write(&format!(r#"{{"name":"CYCLE_START","ph":"i","ts":{at},"pid":0,"s":"g"}}"#));
        }
    }

    fn event(&self, label: &str, kind: &str, phase: &str, more: &str) {
        let mut file = self.lock();
        let Some(open) = &mut *file else { return };
        let line = match open.lines.get(label) {
            Some(line) => *line,
            None => {
                let line = open.lines.len() + 1;
                open.lines.insert(label.to_owned(), line);
                let name = escaped(label);
                open.write(&format!(r#"{{"name":"process_name","ph":"M","pid":{line},"args":{{"name":"{name}"}}}}"#));
                open.write(&format!(
                    r#"{{"name":"process_sort_index","ph":"M","pid":{line},"args":{{"sort_index":{line}}}}}"#
                ));
                line
            }
        };
        let at = open.begun.elapsed().as_micros();
        open.write(&format!(r#"{{"name":"{phase}","ph":"{kind}","ts":{at},"pid":{line}{more}}}"#));
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Open {
    fn write(&mut self, event: &str) {
        self.pending.push_str(if self.is_first { "[\n" } else { ",\n" });
        self.is_first = false;
        self.pending.push_str(event);
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        self.pending.push_str(END);
        // A disk that is full ends the timeline, not the training.
        let _ = self
            .file
            .write_all(self.pending.as_bytes())
            .and_then(|()| self.file.seek(SeekFrom::Current(-(END.len() as i64))));
        self.pending.clear();
    }
}

/// A tensor's label in the timeline: the kind of operation, then its name.
pub(super) fn label(action: &str, name: &str) -> String {
    match name.strip_prefix(action) {
        Some(rest) if rest.starts_with('.') => name.to_owned(),
        _ => format!("{action}.{name}"),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            it if u32::from(it) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(it))),
            it => out.push(it),
        }
    }
    out
}
