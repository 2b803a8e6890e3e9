//! The agent's own log: its stderr, which the launcher keeps in a file and of which the server
//! shows the last line when the agent dies.

use std::fmt::Display;
use std::io::{self, Write};

/// One line. Unlike `eprintln!` it survives a full disk.
pub(crate) fn say(what: impl Display) {
    let _ = writeln!(io::stderr(), "shoal agent: {what}");
}
