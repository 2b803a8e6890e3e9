//! The server's own log: one line an event on standard error, from a level up.

use std::fmt::{self, Write as _};

use time::OffsetDateTime;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

/// Writes lines from now on.
pub(crate) fn install(level: Level) {
    // A second call in one process would be a test's; the first one stays.
    let _ = tracing::subscriber::set_global_default(Lines { level });
}

/// A subscriber without spans: nobody here opens any.
struct Lines {
    level: Level,
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries call an error what a client did wrong (s3s: every 404); they are heard from
        // debug on.
        let ours = metadata.target().starts_with("shoal") || self.level >= Level::DEBUG;
        *metadata.level() <= self.level && metadata.is_event() && ours
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(self.level.into())
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let now = OffsetDateTime::now_utc();
        let metadata = event.metadata();
        eprintln!(
            "{} {:02}:{:02}:{:02}Z {:5} {}{}",
            now.date(),
            now.hour(),
            now.minute(),
            now.second(),
            metadata.level(),
            metadata.target(),
            text.0
        );
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message first as it is, other fields as `name=value`.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = if field.name() == "message" {
            write!(self.0, ": {value:?}")
        } else {
            write!(self.0, " {}={value:?}", field.name())
        };
        written.expect("a string takes all");
    }
}
