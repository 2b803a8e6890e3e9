//! Changes of the user's table: rows of images of their own, each with an environment of the same
//! name and a copy of its lock file, or with a directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::table::is_python;
use crate::{EnvironmentError, Table, TableError};

/// Beside the table: copies of lock files.
const LOCKS: &str = "environments";

/// Why the user's table was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Names stand between blanks in the table.
    #[error("\"{0}\" is no name of an image: give one without blanks and without #")]
    Name(String),
    /// Versions of Python are two numbers.
    #[error("\"{0}\" is no version of Python: write it as 3.11")]
    Python(String),
    /// No tree of files.
    #[error("{} is no directory that can be the root of an instance: it needs a bin or a usr of its own, and a path \
             without blanks and without #", .0.display())]
    Root(PathBuf),
    /// There is no such row.
    #[error("there is no image {name} of your own; those that there are: \
             {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    Unknown {
        /// As it was typed.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// What is there cannot be understood, so nothing is written over it.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] EnvironmentError),
}

/// The file with the user's rows.
#[derive(Debug, Clone)]
pub struct UserTable {
    file: PathBuf,
}

impl UserTable {
    /// The table in `file`, which need not be there.
    pub fn at(file: PathBuf) -> Self {
        Self { file }
    }

    /// Registers an image of the user's own: an environment of these versions of Python, the best
    /// first, with the packages of a lock file, whose text is copied. A row of the same name is
    /// replaced.
    ///
    /// # Errors
    /// The name or a version is none, or the files cannot be written.
    pub fn add(&self, name: &str, pythons: &[String], lock: &str) -> Result<(), ChangeError> {
        check_name(name)?;
        if let Some(wrong) = pythons.iter().find(|python| !is_python(python)) {
            return Err(ChangeError::Python(wrong.clone()));
        }
        let plain: String =
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
        let copy = format!("{LOCKS}/{plain}-{}.txt", crate::shelf::digest(&[name, lock]));
        let directory = self.file.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(directory.join(LOCKS)).map_err(EnvironmentError::io("make", &directory.join(LOCKS)))?;
        fs::write(directory.join(&copy), lock).map_err(EnvironmentError::io("write", &directory.join(&copy)))?;
        let (mut text, before) = self.without(name)?;
        text.push_str(&format!("environment {name} {} {copy}\nimage {name} {name}\n", pythons.join(",")));
        self.write(&text)?;
        self.forget(before.filter(|before| *before != copy));
        Ok(())
    }

    /// Registers an image of the user's own that is a directory: a tree of files with all that its
    /// programs need. It stays where it is. A row of the same name is replaced. Gives the directory
    /// as it stands in the table.
    ///
    /// # Errors
    /// The name or the directory is none, or the file cannot be written.
    pub fn add_root(&self, name: &str, directory: &Path) -> Result<PathBuf, ChangeError> {
        check_name(name)?;
        let wrong = || ChangeError::Root(directory.to_owned());
        let found = directory.canonicalize().map_err(|_| wrong())?;
        let text = found
            .to_str()
            .filter(|text| !text.contains('#') && !text.contains(char::is_whitespace))
            .ok_or_else(wrong)?;
        let has = |name: &str| fs::symlink_metadata(found.join(name)).is_ok();
        if found == Path::new("/") || !(has("bin") || has("usr")) {
            return Err(wrong());
        }
        let (mut rows, before) = self.without(name)?;
        rows.push_str(&format!("rootfs {name} {text}\n"));
        self.write(&rows)?;
        self.forget(before);
        Ok(found)
    }

    /// Takes an image of the user's own away. Environments that were made stay in the cache.
    ///
    /// # Errors
    /// There is none of this name, or the files cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), ChangeError> {
        let table = Table::read(&self.file)?;
        let of_environments = table.images().filter(|(_, _, is_users)| *is_users).map(|(pattern, ..)| pattern);
        let own: Vec<_> = of_environments.chain(table.roots().map(|(pattern, _)| pattern)).map(str::to_owned).collect();
        if !own.iter().any(|known| known == name) {
            return Err(ChangeError::Unknown { name: name.to_owned(), known: own });
        }
        let (text, before) = self.without(name)?;
        self.write(&text)?;
        self.forget(before);
        Ok(())
    }

    /// The table's text without the rows of this name, and the lock file that they named.
    /// Everything else stays as it was written.
    fn without(&self, name: &str) -> Result<(String, Option<String>), ChangeError> {
        // What is wrong is told before anything is changed.
        Table::read(&self.file)?;
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(EnvironmentError::io("read", &self.file))?,
        };
        let (mut rest, mut lock) = (String::new(), None);
        for line in text.lines() {
            match *line.split('#').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>() {
                ["environment", named, _, file] if named == name => lock = Some(file.to_owned()),
                ["image" | "rootfs", named, ..] if named == name => {}
                _ => rest.extend([line, "\n"]),
            }
        }
        Ok((rest, lock))
    }

    fn write(&self, text: &str) -> Result<(), ChangeError> {
        let draft = self.file.with_extension("draft");
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, &self.file));
        Ok(written.map_err(EnvironmentError::io("write", &self.file))?)
    }

    /// A copy that no row names any more; those that the user named elsewhere are theirs.
    fn forget(&self, lock: Option<String>) {
        if let Some(lock) = lock.filter(|lock| lock.starts_with(&format!("{LOCKS}/"))) {
            // One copy too many does no harm.
            let _ = fs::remove_file(self.file.parent().unwrap_or(Path::new("")).join(lock));
        }
    }
}

fn check_name(name: &str) -> Result<(), ChangeError> {
    let is_wrong = name.is_empty() || name.contains('#') || name.contains(char::is_whitespace);
    if is_wrong { Err(ChangeError::Name(name.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_and_go_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("environments.txt");
        fs::write(&file, "# mine\nimage shoal/pt pytorch\n").unwrap();
        let own = UserTable::at(file.clone());
        let locks = || fs::read_dir(dir.path().join(LOCKS)).unwrap().count();
        let pythons = ["3.12".to_owned(), "3.11".to_owned()];
        own.add("me/tool:1", &pythons, "numpy==2.0\n").unwrap();
        own.add("me/tool:1", &pythons, "numpy==2.1\n").unwrap();
        let found = Table::read(&file).unwrap().find("me/tool:1").unwrap().unwrap().environment;
        assert_eq!((&*found.name, &found.pythons[..], &*found.lock), ("me/tool:1", &pythons[..], "numpy==2.1\n"));
        assert_eq!(locks(), 1, "the copy of the first is gone");
        own.remove("me/tool:1").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\nimage shoal/pt pytorch\n");
        assert_eq!(locks(), 0);
        let error = own.remove("me/tool:1").unwrap_err().to_string();
        assert_eq!(error, "there is no image me/tool:1 of your own; those that there are: shoal/pt");
    }

    #[test]
    fn nothing_is_written_over_what_is_not_understood() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("environments.txt");
        let own = UserTable::at(file.clone());
        for (name, python) in [("a b", "3.11"), ("", "3.11"), ("a#", "3.11"), ("a", "three"), ("a", "3.11,3.12")] {
            own.add(name, &[python.to_owned()], "").unwrap_err();
        }
        fs::write(&file, "imagine\n").unwrap();
        own.add("a", &["3.11".to_owned()], "").unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), "imagine\n");
    }
}
