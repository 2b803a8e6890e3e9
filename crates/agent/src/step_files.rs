//! Files of steps that the program has written, each read once.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use shoal_profile::{EVENTS, Step, parse};

use crate::mirror::Place;
use crate::mirror::tree::Tree;

/// Bytes of a file: the hook's end long before.
const MOST_BYTES: u64 = 32 << 20;
/// Folders, one an hour, in which new files may be.
const NEWEST_FOLDERS: usize = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct StepFiles {
    tree: Tree,
    seen: HashSet<PathBuf>,
}

impl StepFiles {
    /// Of a profiler's directory, which need not exist yet.
    pub(crate) fn open(place: &Place) -> io::Result<Self> {
        Ok(Self { tree: Tree::open(&place.base, &place.root)?, seen: HashSet::new() })
    }

    /// The steps of files that are new, in the order of the files' ends; none as long as no program
    /// has announced steps.
    pub(crate) fn read(&mut self) -> Option<Vec<Step>> {
        let mut folders = Vec::new();
        self.tree.list(Path::new(EVENTS), |path, metadata| folders.extend(metadata.is_dir().then_some(path))).ok()?;
        folders.sort();
        let mut new = Vec::new();
        for folder in folders.iter().rev().take(NEWEST_FOLDERS) {
            let is_new = |path: &Path| path.extension().is_some_and(|it| it == "json") && !self.seen.contains(path);
            // One that is gone has nothing.
            let _ = self.tree.list(folder, |path, metadata| {
                if metadata.is_file() && is_new(&path) {
                    new.push(path);
                }
            });
        }
        new.sort();
        let mut steps = Vec::new();
        for path in new {
            if let Ok(text) = self.text(&path) {
                steps.extend(parse(&text));
            }
            self.seen.insert(path);
        }
        Some(steps)
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.tree.open_inside(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_file_is_read_once_and_no_link_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = PathBuf::from("output/profiler");
        let place = Place { base: temp.path().to_owned(), root: root.clone(), marks: temp.path().join("marks") };
        let mut files = StepFiles::open(&place).unwrap();
        assert_eq!(files.read(), None);
        let folder = temp.path().join(root).join(EVENTS).join("2026112703");
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(files.read(), Some(Vec::new()));
        let event = |number: u64| {
            format!(
                "[\n{{\"name\":\"Step:ModeKeys.TRAIN\",\"ph\":\"X\",\"dur\":5,\"args\":{{\"step_num\":{number}}}}}\n]\n"
            )
        };
        fs::write(folder.join("1_7-algo-1_pythontimeline.json"), event(1)).unwrap();
        fs::write(folder.join("2_7-algo-1_pythontimeline.json.tmp"), event(2)).unwrap();
        symlink("1_7-algo-1_pythontimeline.json", folder.join("3_7-algo-1_pythontimeline.json")).unwrap();
        let numbers = |files: &mut StepFiles| files.read().unwrap().iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(numbers(&mut files), [1]);
        fs::write(folder.join("4_7-algo-1_pythontimeline.json"), event(4)).unwrap();
        assert_eq!(numbers(&mut files), [4]);
        assert_eq!(numbers(&mut files), [0; 0]);
    }
}
