//! The table as it is now, for a server that asks it for each job that it shows: what was parsed is
//! kept for as long as the user's rows are the same.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::table::{Table, TableError, users_rows};

/// The table of a user who may change it at any time.
#[derive(Debug)]
pub struct LiveTable {
    users: PathBuf,
    /// What was parsed last: the user's rows, and the table of them.
    parsed: Mutex<Option<(String, Arc<Table>)>>,
}

impl LiveTable {
    /// With the rows of this file, which need not be there.
    pub fn new(users: PathBuf) -> Self {
        Self { users, parsed: Mutex::default() }
    }

    /// The table of the present rows.
    ///
    /// # Errors
    /// Those of [`Table::read`].
    pub fn get(&self) -> Result<Arc<Table>, TableError> {
        let rows = users_rows(&self.users)?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*parsed {
            Some((of, table)) if *of == rows => Ok(Arc::clone(table)),
            _ => {
                let table = Arc::new(Table::of(&rows, &self.users)?);
                *parsed = Some((rows, Arc::clone(&table)));
                Ok(table)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_change_of_the_file_counts_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("environments.txt");
        let table = LiveTable::new(file.clone());
        let before = table.get().unwrap();
        assert!(before.root("mine").is_none() && Arc::ptr_eq(&before, &table.get().unwrap()));
        fs::write(&file, "rootfs mine /one\n").unwrap();
        assert_eq!(table.get().unwrap().root("mine"), Some("/one".as_ref()));
        fs::write(&file, "rootfs mine /two\n").unwrap();
        assert_eq!(table.get().unwrap().root("mine"), Some("/two".as_ref()));
        fs::write(&file, "nonsense\n").unwrap();
        assert!(table.get().is_err() && table.get().is_err(), "an error is returned each time");
        fs::remove_file(&file).unwrap();
        assert!(table.get().unwrap().root("mine").is_none());
    }
}
