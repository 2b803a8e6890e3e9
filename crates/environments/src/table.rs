//! Which image names stand for which environment: the table that comes along
//! (`environments/table.txt` of the repository, which tells the form), asked after the user's own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::image::{fits, tag_of, version_of};

/// A Python environment as it is wanted: all that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// For people.
    pub name: String,
    /// Versions of Python that it can have (`3.11`), the best first.
    pub pythons: Vec<String>,
    /// The lock file's text: requirements as pip reads them, pinned.
    pub lock: String,
}

/// What an image name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The environment.
    pub environment: Environment,
    /// Which version of the framework it has, and whether the image's tag asks for another; `None`
    /// where the row names no package.
    pub notice: Option<String>,
}

/// Why the table cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A line that is neither kind of row.
    #[error("{}:{line}: \"{found}\" is neither \"environment NAME PYTHONS LOCK\" nor \"image PATTERN ENVIRONMENT \
             [PACKAGE]\" nor \"rootfs PATTERN DIRECTORY\"; correct the line or remove it", file.display())]
    Row {
        /// Which.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// As it stands there.
        found: String,
    },
    /// Versions of Python are two numbers.
    #[error("{}:{line}: \"{found}\" names no versions of Python; write them as 3.11 or 3.11,3.12", file.display())]
    Pythons {
        /// Which.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// As it stands there.
        found: String,
    },
    /// An image of an environment that is not there.
    #[error("{}:{line}: there is no environment {name}; add a row \"environment {name} PYTHONS LOCK\"", file.display())]
    Environment {
        /// Which.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// As it stands there.
        name: String,
    },
    /// A file is there and cannot be read, or a lock file is not there.
    #[error("could not read {}: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The text of a lock file, or where it is.
#[derive(Debug, Clone)]
enum Lock {
    Text(&'static str),
    File(PathBuf),
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    pythons: Vec<String>,
    lock: Lock,
    /// What the lock was made of, line by line; `None` of a user's own.
    direct: Option<&'static str>,
}

/// A row for images.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageRow {
    pattern: String,
    environment: String,
    package: Option<String>,
    /// Of the user's table.
    is_users: bool,
}

/// A row for images that are a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RootRow {
    pattern: String,
    directory: PathBuf,
}

/// The rows, the user's first.
#[derive(Debug, Clone, Default)]
pub struct Table {
    environments: Vec<Entry>,
    images: Vec<ImageRow>,
    roots: Vec<RootRow>,
}

/// A lock file of the table that comes along, and the requirements that it was made of.
struct Shipped {
    lock: &'static str,
    text: &'static str,
    direct: &'static str,
}

macro_rules! shipped {
    ($name:literal) => {
        Shipped {
            lock: concat!($name, ".txt"),
            text: include_str!(concat!("../../../environments/", $name, ".txt")),
            direct: include_str!(concat!("../../../environments/", $name, ".in")),
        }
    };
}

const SHIPPED_LOCKS: [Shipped; 13] = [
    shipped!("scikit-learn-1.2"),
    shipped!("scikit-learn-1.4"),
    shipped!("xgboost"),
    shipped!("xgboost-0.90"),
    shipped!("xgboost-1.0"),
    shipped!("xgboost-1.2"),
    shipped!("xgboost-1.3"),
    shipped!("xgboost-1.5"),
    shipped!("xgboost-1.7"),
    shipped!("pytorch"),
    shipped!("huggingface"),
    shipped!("mxnet"),
    shipped!("tensorflow"),
];

const SHIPPED: &str = include_str!("../../../environments/table.txt");

impl Table {
    /// The user's rows, where there is such a file, and then those that come along.
    ///
    /// # Errors
    /// The user's file cannot be read or understood; the text names the line.
    pub fn read(users: &Path) -> Result<Self, TableError> {
        Self::of(&users_rows(users)?, users)
    }

    /// The user's rows, which are those of a file, and then those that come along.
    pub(crate) fn of(rows: &str, users: &Path) -> Result<Self, TableError> {
        let mut table = Self::default();
        table.extend(rows, users, true)?;
        table.with_shipped()
    }

    /// The rows that come along, alone.
    ///
    /// # Errors
    /// None that a build of which the tests pass has.
    pub fn shipped() -> Result<Self, TableError> {
        Self::default().with_shipped()
    }

    fn with_shipped(mut self) -> Result<Self, TableError> {
        self.extend(SHIPPED, Path::new("environments/table.txt"), false)?;
        Ok(self)
    }

    fn extend(&mut self, text: &str, file: &Path, is_users: bool) -> Result<(), TableError> {
        let rows = (1..).zip(text.lines()).map(|(line, text)| (line, text.split('#').next().unwrap_or_default()));
        let rows = rows
            .map(|(line, text)| (line, text.split_whitespace().collect::<Vec<_>>()))
            .filter(|(_, columns)| !columns.is_empty());
        let mut images = Vec::new();
        for (line, columns) in rows {
            let at = |found: &str| (file.to_owned(), line, found.to_owned());
            match *columns {
                ["environment", name, pythons, lock] => {
                    let pythons: Vec<_> = pythons.split(',').map(str::to_owned).collect();
                    if !pythons.iter().all(|python| is_python(python)) {
                        let (file, line, found) = at(columns[2]);
                        return Err(TableError::Pythons { file, line, found });
                    }
                    let shipped = SHIPPED_LOCKS.iter().find(|shipped| !is_users && shipped.lock == lock);
                    let lock = match shipped {
                        Some(shipped) => Lock::Text(shipped.text),
                        None => Lock::File(file.parent().unwrap_or(Path::new("")).join(lock)),
                    };
                    self.environments.push(Entry {
                        name: name.to_owned(),
                        pythons,
                        lock,
                        direct: shipped.map(|it| it.direct),
                    });
                }
                ["image", pattern, environment] | ["image", pattern, environment, _] => {
                    let package = columns.get(3).map(|&package| package.to_owned());
                    images.push((
                        line,
                        ImageRow {
                            pattern: pattern.to_owned(),
                            environment: environment.to_owned(),
                            package,
                            is_users,
                        },
                    ));
                }
                ["rootfs", pattern, directory] if directory.starts_with('/') => {
                    self.roots.push(RootRow { pattern: pattern.to_owned(), directory: directory.into() });
                }
                _ => {
                    let (file, line, found) = at(&columns.join(" "));
                    return Err(TableError::Row { file, line, found });
                }
            }
        }
        for (line, row) in images {
            // A user's image may be of an environment that comes along.
            if self.entry(&row.environment).is_none() && !(is_users && is_shipped(&row.environment)) {
                return Err(TableError::Environment { file: file.to_owned(), line, name: row.environment });
            }
            self.images.push(row);
        }
        Ok(())
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.environments.iter().find(|entry| entry.name == name)
    }

    /// What `image` stands for; `None` if no row fits it.
    ///
    /// # Errors
    /// Its lock file cannot be read.
    pub fn find(&self, image: &str) -> Result<Option<Found>, TableError> {
        let Some(row) = self.images.iter().find(|row| fits(&row.pattern, image)) else { return Ok(None) };
        let Some(environment) = self.environment(&row.environment)? else { return Ok(None) };
        let asked = tag_of(image.split('@').next().unwrap_or(image)).and_then(version_of);
        let notice = row.package.as_deref().and_then(|package| {
            let has = environment.pinned(package)?;
            let is_another =
                |asked: &&str| has != *asked && has.strip_prefix(asked).is_none_or(|rest| !rest.starts_with('.'));
            let asked =
                asked.filter(is_another).map(|asked| format!("{image} asks for version {asked}; ")).unwrap_or_default();
            Some(format!("{asked}the environment {} has {package} {has}", environment.name))
        });
        Ok(Some(Found { environment, notice }))
    }

    /// The directory that `image` stands for, of the user's rows for such; these are asked before
    /// all others. `None` if no row fits it.
    pub fn root(&self, image: &str) -> Option<&Path> {
        self.roots.iter().find(|row| fits(&row.pattern, image)).map(|row| &*row.directory)
    }

    /// All rows for images that are a directory: pattern, directory.
    pub fn roots(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.roots.iter().map(|row| (&*row.pattern, &*row.directory))
    }

    /// The environment of this name; `None` if there is none.
    ///
    /// # Errors
    /// Its lock file cannot be read.
    pub fn environment(&self, name: &str) -> Result<Option<Environment>, TableError> {
        let Some(entry) = self.entry(name) else { return Ok(None) };
        let lock = match &entry.lock {
            Lock::Text(text) => (*text).to_owned(),
            Lock::File(file) => {
                fs::read_to_string(file).map_err(|source| TableError::Unreadable { file: file.clone(), source })?
            }
        };
        Ok(Some(Environment { name: entry.name.clone(), pythons: entry.pythons.clone(), lock }))
    }

    /// Names of the packages that an environment is for, without those that these bring; `None`
    /// where nothing tells which they are.
    pub(crate) fn direct(&self, name: &str) -> Option<impl Iterator<Item = &'static str>> {
        let lines =
            self.entry(name)?.direct?.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Some(lines.map(|line| line.split(['=', '<', '>', '!', '~', '[', ';', ' ']).next().unwrap_or_default()))
    }

    /// All rows for images: pattern, environment, whether the row is the user's.
    pub fn images(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.images.iter().map(|row| (&*row.pattern, &*row.environment, row.is_users))
    }

    /// Names of all environments.
    pub fn environments(&self) -> impl Iterator<Item = &str> {
        self.environments.iter().map(|entry| &*entry.name)
    }
}

/// The text of the user's file; empty where there is none.
pub(crate) fn users_rows(users: &Path) -> Result<String, TableError> {
    match fs::read_to_string(users) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|source| TableError::Unreadable { file: users.to_owned(), source }),
    }
}

impl Environment {
    /// The version to which a package is pinned; packages may be spelt with `-`, `_` and any case.
    pub fn pinned(&self, package: &str) -> Option<&str> {
        self.lock.lines().find_map(|line| {
            let (name, rest) = line.split_once("==")?;
            (plain(name) == plain(package)).then(|| rest.split([' ', ';', '\\', '#']).next().unwrap_or_default())
        })
    }

    /// How many packages are pinned.
    pub(crate) fn packages(&self) -> usize {
        self.lock.lines().filter(|line| line.contains("==") && !line.starts_with([' ', '#', '-'])).count()
    }
}

/// A package's name in the spelling in which names are compared.
pub(crate) fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', '.'], "-")
}

/// `3.11`.
pub(crate) fn is_python(version: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.len() <= 3 && part.bytes().all(|byte| byte.is_ascii_digit());
    version.split_once('.').is_some_and(|(major, minor)| major == "3" && is_number(minor))
}

fn is_shipped(environment: &str) -> bool {
    SHIPPED.lines().any(|line| line.split_whitespace().take(2).eq(["environment", environment]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_users(text: &str) -> Result<Table, TableError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("environments.txt");
        fs::write(&file, text).unwrap();
        fs::write(dir.path().join("mine.lock"), "numpy==2.0\n").unwrap();
        let table = Table::read(&file)?;
        // Lock files are read when they are needed; then they are there no more.
        table.environments.iter().filter(|entry| entry.name == "mine").for_each(|_| {
            assert_eq!(table.environment("mine").unwrap().unwrap().lock, "numpy==2.0\n");
        });
        Ok(table)
    }

    fn shipped() -> Table {
        Table::shipped().unwrap()
    }

    #[test]
    fn images_that_sdks_name_have_environments() {
        const DLC: &str = "763104351884.dkr.ecr.us-west-2.amazonaws.com";
        for (image, expected) in [
            (
                "246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3".to_owned(),
                Some("scikit-learn-1.2"),
            ),
            ("sagemaker-scikit-learn:1.4-2-cpu-py3".to_owned(), Some("scikit-learn-1.4")),
            ("sagemaker-scikit-learn:0.23-1-cpu-py3".to_owned(), Some("scikit-learn-1.2")),
            ("246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.7-1".to_owned(), Some("xgboost-1.7")),
            ("sagemaker-xgboost:0.90-2-cpu-py3".to_owned(), Some("xgboost-0.90")),
            ("sagemaker-xgboost:3.0-5".to_owned(), Some("xgboost")),
            (format!("{DLC}/pytorch-training:2.0.1-gpu-py310"), Some("pytorch")),
            (
                "658645717510.dkr.ecr.us-west-2.amazonaws.com/smdistributed-modelparallel:2.5.0-gpu-py311-cu124"
                    .to_owned(),
                Some("pytorch"),
            ),
            (
                format!("{DLC}/huggingface-pytorch-training:2.0.0-transformers4.28.1-gpu-py310-cu118-ubuntu20.04"),
                Some("huggingface"),
            ),
            (format!("{DLC}/pytorch-training-neuronx:2.1"), None),
            ("me/pytorch-training:2.0".to_owned(), None),
        ] {
            let found = shipped().find(&image).unwrap();
            assert_eq!(found.map(|found| found.environment.name).as_deref(), expected, "{image}");
        }
    }

    #[test]
    fn the_version_is_told_and_whether_another_was_asked_for() {
        let notice = |image: &str| shipped().find(image).unwrap().unwrap().notice;
        assert_eq!(
            notice("sagemaker-scikit-learn:1.2-1-cpu-py3").unwrap(),
            "the environment scikit-learn-1.2 has scikit-learn 1.2.2"
        );
        assert!(notice("pytorch-training").unwrap().starts_with("the environment pytorch has torch 2."));
        for version in ["0.90-2", "1.0-1-cpu-py3", "1.2-2", "1.3-1", "1.5-1", "1.7-1", "3.0-5"] {
            let told = notice(&format!("sagemaker-xgboost:{version}")).unwrap();
            assert!(told.starts_with("the environment xgboost"), "{told}");
        }
        let told = notice("pytorch-training:2.0.1-cpu-py310").unwrap();
        assert!(
            told.starts_with(
                "pytorch-training:2.0.1-cpu-py310 asks for version 2.0.1; the environment pytorch has torch 2."
            ),
            "{told}"
        );
    }

    #[test]
    fn every_shipped_environment_has_its_lock_with_every_package_that_rows_name() {
        let table = shipped();
        for row in &table.images {
            let environment = table.environment(&row.environment).unwrap().unwrap();
            let package = row.package.as_deref().unwrap();
            assert!(environment.pinned(package).is_some(), "{package} is not in the lock of {}", row.environment);
            assert!(environment.pinned("pip").is_some(), "jobs' requirements need pip in {}", row.environment);
        }
    }

    #[test]
    fn the_users_rows_win() {
        let table = with_users(
            "# mine\nenvironment mine 3.11,3.12 mine.lock\nimage pytorch-training:2.0* mine\nimage shoal/pt \
                        pytorch # theirs\n",
        )
        .unwrap();
        let rows: Vec<_> = table.images().take(2).collect();
        assert_eq!(rows, [("pytorch-training:2.0*", "mine", true), ("shoal/pt", "pytorch", true)]);
        assert_eq!(table.find("shoal/pt").unwrap().unwrap().environment.name, "pytorch");
        assert_eq!(table.find("pytorch-training:2.8.0").unwrap().unwrap().environment.name, "pytorch");
    }

    #[test]
    fn directories_are_images_too() {
        let table = with_users("rootfs me/tree:* /srv/tree\nimage me/other pytorch\n").unwrap();
        assert_eq!(table.root("me/tree:7"), Some(Path::new("/srv/tree")));
        assert_eq!((table.root("me/other"), table.roots().count()), (None, 1));
        assert!(with_users("rootfs me/tree srv/tree\n").is_err(), "relative to what?");
    }

    #[test]
    fn mistakes_name_the_line() {
        for (text, expected) in [
            ("\nimage x", "environments.txt:2: \"image x\" is neither"),
            ("environment mine 3 mine.lock", "environments.txt:1: \"3\" names no versions of Python"),
            ("environment mine 3.11, mine.lock", "environments.txt:1: \"3.11,\" names no"),
            ("image x other", "environments.txt:1: there is no environment other"),
        ] {
            let error = with_users(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let missing = with_users("environment other 3.11 absent.lock\nimage x other\n").unwrap();
        let error = missing.find("x").unwrap_err().to_string();
        assert!(error.contains("absent.lock"), "{error}");
    }
}
