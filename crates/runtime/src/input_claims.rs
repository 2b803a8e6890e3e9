//! Which attempts read which inputs. Inputs that several attempts have in common are prepared once,
//! and removed when nobody reads them any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// What happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A reader is about to prepare this directory, or uses it since before a restart.
    Claimed {
        /// Of the prepared inputs.
        dir: &'a Path,
        /// An attempt, or an instance that is retained for others.
        reader: &'a str,
    },
    /// A reader is gone.
    Released {
        /// Which.
        reader: &'a str,
    },
    /// These directories are there at the start, when all readers that still live have claimed
    /// theirs.
    Found(Vec<PathBuf>),
}

/// What the driver does, before it handles the next event.
#[derive(Debug, PartialEq, Eq)]
pub enum Io {
    /// Remove this directory: nobody reads it.
    Remove(PathBuf),
}

/// All prepared inputs.
#[derive(Debug, Default)]
pub struct InputClaims {
    readers: BTreeMap<PathBuf, BTreeSet<String>>,
}

impl InputClaims {
    /// What follows from an event.
    pub fn handle(&mut self, event: Event<'_>) -> Vec<Io> {
        match event {
            Event::Claimed { dir, reader } => {
                self.readers.entry(dir.to_owned()).or_default().insert(reader.to_owned());
                Vec::new()
            }
            Event::Released { reader } => {
                let unread = self.readers.extract_if(.., |_, readers| readers.remove(reader) && readers.is_empty());
                unread.map(|(dir, _)| Io::Remove(dir)).collect()
            }
            Event::Found(dirs) => {
                dirs.into_iter().filter(|dir| !self.readers.contains_key(dir)).map(Io::Remove).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(claims: &mut InputClaims, dir: &str, reader: &str) {
        assert_eq!(claims.handle(Event::Claimed { dir: Path::new(dir), reader }), []);
    }

    fn removed(io: Vec<Io>) -> Vec<String> {
        io.into_iter().map(|Io::Remove(dir)| dir.display().to_string()).collect()
    }

    #[test]
    fn inputs_go_with_their_last_reader() {
        let mut claims = InputClaims::default();
        for (dir, reader) in [("train", "a-1"), ("train", "b-1"), ("test", "a-1"), ("train", "a-1")] {
            claim(&mut claims, dir, reader);
        }
        assert_eq!(removed(claims.handle(Event::Released { reader: "a-1" })), ["test"]);
        assert_eq!(removed(claims.handle(Event::Released { reader: "a-1" })), Vec::<String>::new());
        // An instance is retained by its own claim before the attempt's ends.
        claim(&mut claims, "train", "kept b-1");
        assert_eq!(removed(claims.handle(Event::Released { reader: "b-1" })), Vec::<String>::new());
        assert_eq!(removed(claims.handle(Event::Released { reader: "kept b-1" })), ["train"]);
    }

    #[test]
    fn a_start_removes_what_nobody_claims() {
        let mut claims = InputClaims::default();
        claim(&mut claims, "train", "a-1");
        let found = ["old", "train", "older"].map(PathBuf::from).to_vec();
        assert_eq!(removed(claims.handle(Event::Found(found))), ["old", "older"]);
    }
}
