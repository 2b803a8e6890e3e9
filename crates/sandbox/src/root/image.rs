//! What is written into the tree of an image, so that its programs know the instance. Nobody has
//! vouched for the tree: none of its links is followed.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{hosts, staged, write_file};
use crate::SandboxSpec;
use crate::users::{HOME, PROGRAM_ID, USER};

/// A longer list of users is none.
const MOST: u64 = 1 << 20;

/// The host's names are the instance's, its list of users is the image's with the program's own.
/// `/etc` is there and no link.
pub(super) fn write_identity(spec: &SandboxSpec) -> io::Result<()> {
    let etc = staged("etc");
    let passwd = with_line(&etc.join("passwd"), &format!("{USER}:x:{PROGRAM_ID}:{PROGRAM_ID}::{HOME}:/bin/sh"))?;
    let group = with_line(&etc.join("group"), &format!("{USER}:x:{PROGRAM_ID}:"))?;
    let hostname = format!("{}\n", spec.hostname);
    // There is no way out, and a resolver that waits for an answer only costs time.
    for (name, text) in [
        ("hosts", &*hosts(spec)),
        ("hostname", &*hostname),
        ("resolv.conf", ""),
        ("passwd", &*passwd),
        ("group", &*group),
    ] {
        let path = etc.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => write_file(&path, text)?,
        }
    }
    Ok(())
}

/// The text of a file with one more line, unless it has the program's id or name already.
fn with_line(path: &Path, line: &str) -> io::Result<String> {
    let mut text = String::new();
    match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Ok(file) => {
            let mut bytes = Vec::new();
            file.take(MOST).read_to_end(&mut bytes)?;
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let is_known = text.lines().any(|known| {
        let mut columns = known.split(':');
        columns.next() == Some(USER) || columns.nth(1).and_then(|id| id.parse().ok()) == Some(PROGRAM_ID)
    });
    if !is_known {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        text = format!("{text}{end}{line}\n");
    }
    Ok(text)
}
