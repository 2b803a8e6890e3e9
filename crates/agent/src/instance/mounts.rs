//! What of the machine an instance sees.

use std::path::PathBuf;

use shoal_contract::Paths;
use shoal_link::{Assignment, Delivery, Program};
use shoal_sandbox::Mount;

use super::{Home, is_pipe};

pub(super) fn mounts(assignment: &Assignment, home: &Home) -> Vec<Mount> {
    let inside = Paths::default();
    let mut mounts = vec![Mount::Bind { source: home.ml(), target: inside.base().to_owned() }];
    mounts.extend(assignment.channels.iter().filter(|channel| !is_pipe(channel)).map(|channel| {
        let (tree, target) = (channel.tree.directory().to_owned(), inside.channel(&channel.name));
        match (&channel.delivery, &assignment.program) {
            (Delivery::Directory { below, is_writable }, _) => {
                Mount::Shared { root: tree, below: below.into(), target, is_writable: *is_writable }
            }
            // What is mounted already is read-only, and everybody may read it.
            (Delivery::FilesAsRead, _) if tree.starts_with(home.inputs()) => {
                Mount::Shared { root: tree, below: PathBuf::new(), target, is_writable: false }
            }
            // Ours write nothing there.
            (_, Program::Builtin { .. }) => Mount::ReadOnly { source: tree, target },
            (_, Program::Host { .. } | Program::Image { .. } | Program::Script { .. }) => {
                Mount::Overlay { lower: tree, scratch: home.scratch(&channel.name), target }
            }
        }
    }));
    for (kind, mirrored) in assignment.mirrored() {
        let place = home.mirrored(kind, mirrored.local_path);
        if place.root.as_os_str().is_empty() {
            mounts.push(Mount::Bind { source: place.base, target: mirrored.local_path.into() });
        }
    }
    if let Program::Builtin { library_dirs, .. } = &assignment.program {
        mounts.extend(library_dirs.iter().map(|dir| Mount::ReadOnly { source: dir.into(), target: dir.into() }));
    }
    mounts
}
