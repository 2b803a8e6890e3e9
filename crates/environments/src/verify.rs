//! Whether an environment still is what was installed: every file against the digest that its wheel has for it.

use std::path::PathBuf;

use crate::{Cache, Cached, EnvironmentError, Record};

/// How a look at an environment came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// So many files have a digest.
    pub files: u64,
    /// Those that are gone or are others, in sentences.
    pub problems: Vec<String>,
}

/// Prints the number of files, and then a line for each that is not what it was.
const SCRIPT: &str = r#"
import base64, hashlib, importlib.metadata, os, sys
count, problems = 0, []
for distribution in importlib.metadata.distributions(path=[sys.argv[1]]):
    for entry in distribution.files or []:
        if entry.hash is None:
            continue
        count += 1
        path = os.path.realpath(entry.locate())
        try:
            with open(path, "rb") as file:
                digest = hashlib.new(entry.hash.mode, file.read()).digest()
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != entry.hash.value:
            problems.append(f"{path}: it is not the file that was installed")
print(count, *problems, sep="\n")
"#;

impl Cache {
    /// Reads every file of an environment that is whole.
    ///
    /// # Errors
    /// Its interpreter does not run.
    pub fn verify(&self, cached: &Cached<Record>) -> Result<Verdict, EnvironmentError> {
        let Some(record) = &cached.record else {
            return Ok(Verdict { files: 0, problems: vec!["it is not whole".to_owned()] });
        };
        let python: PathBuf = cached.directory.join("bin/python");
        let mut command = self.source().command(&python);
        let output =
            command.args(["-I", "-c", SCRIPT]).arg(&record.site_packages).output().map_err(EnvironmentError::io("run", &python))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut lines = said.lines();
        match lines.next().and_then(|count| count.parse().ok()).filter(|_| output.status.success()) {
            Some(files) => Ok(Verdict { files, problems: lines.map(str::to_owned).collect() }),
            None => Err(EnvironmentError::Failed {
                name: cached.id.clone(),
                step: "the look at its files",
                how: output.status.to_string(),
                said: String::from_utf8_lossy(&output.stderr).into_owned(),
            }),
        }
    }
}
