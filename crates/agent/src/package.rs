//! A script with a `setup.py` beside it is a module of a package, which SageMaker's toolkit
//! installs before it starts. So do we, inside the instance: `setup.py` is the user's code.

use std::fs;
use std::path::Path;

use shoal_contract::Paths;
use shoal_environments::Environment;
use shoal_link::{Assignment, Program, RankOutcome};
use shoal_sandbox::{SandboxSpec, Support};

use crate::inside;
use crate::python::put_paths;

/// What an instance does first.
const INSTALL: &str = include_str!("install_package.py");

/// Packages by which pip installs one without a network.
const TOOLS: [&str; 2] = ["setuptools", "wheel"];

/// Exit code of an installation that lacks what the package requires.
const LACKING: i32 = 75;

/// Where it says what that is, below `/opt/ml`.
const LACKS: &str = "package-lacks.txt";

/// More is no list of requirements.
const MOST_LACKS: u64 = 64 << 10;

/// Whether the source in this directory is one.
pub(crate) fn is_one(code: &Path) -> bool {
    fs::symlink_metadata(code.join("setup.py")).is_ok_and(|metadata| metadata.is_file())
}

/// Whether the job's script comes with one; `ml` is `/opt/ml` on this machine.
pub(crate) fn is_of(assignment: &Assignment, ml: &Path) -> bool {
    matches!(assignment.program, Program::Script { .. }) && is_one(&Paths::new(ml).code())
}

/// What its installation needs and the environment does not have.
pub(crate) fn tools(environment: &Environment) -> Vec<&'static str> {
    TOOLS.into_iter().filter(|name| environment.pinned(name).is_none()).collect()
}

/// What an installation that was to tell has found to be lacking, as lines of a `requirements.txt`.
pub(crate) fn lacks(outcome: RankOutcome, ml: &Path) -> Option<String> {
    let bytes = (outcome == RankOutcome::Exited(LACKING))
        .then(|| inside::read_start(ml, Path::new(LACKS), MOST_LACKS).ok())??;
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Has the package installed before the program starts, which then finds its modules and scripts
/// first. What it requires and the environment lacks is a failure, or where it `tells`, for
/// [`lacks`].
pub(crate) fn install_first(spec: &mut SandboxSpec, support: &Support, tells: bool) {
    let place = support.path_of(&spec.mounts, &Paths::default().package());
    put_paths(&mut spec.env, "PYTHONPATH", std::slice::from_ref(&place), true);
    put_paths(&mut spec.env, "PATH", &[place.join("bin")], true);
    if let Some(program) = spec.command.first_mut().filter(|program| program.starts_with('/')) {
        // Only of the first word a plain process is told where it is.
        *program = support.path_of(&spec.mounts, Path::new(program)).to_string_lossy().into_owned();
    }
    let words = ["python3", "-I", "-c", INSTALL, &*place.to_string_lossy(), if tells { LACKS } else { "" }];
    spec.command = words.into_iter().map(str::to_owned).chain(std::mem::take(&mut spec.command)).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_sandbox::Mount;

    #[test]
    fn what_installs_a_package_is_of_the_environment_or_comes_on_top() {
        for (lock, expected) in [
            ("numpy==2.0\n", vec!["setuptools", "wheel"]),
            ("Setuptools==80.1 \\\n", vec!["wheel"]),
            ("wheel==1\nsetuptools==2\n", vec![]),
        ] {
            let environment = Environment { name: "e".to_owned(), pythons: Vec::new(), lock: lock.to_owned() };
            assert_eq!(tools(&environment), expected, "{lock}");
        }
    }

    #[test]
    fn a_plain_process_finds_its_program_and_its_package_on_the_machine() {
        let mut spec = SandboxSpec {
            id: "id".to_owned(),
            hostname: "algo-1".to_owned(),
            host: 1,
            hosts: vec!["algo-1".to_owned()],
            mounts: vec![
                Mount::Bind { source: "/data/ml".into(), target: "/opt/ml".into() },
                Mount::ReadOnly { source: "/usr/bin/shoal".into(), target: "/opt/shoal/bin/shoal".into() },
            ],
            command: ["/opt/shoal/bin/shoal", "mpi", "wait"].map(str::to_owned).to_vec(),
            env: vec![
                ("PATH".to_owned(), "/usr/bin".to_owned()),
                ("PYTHONPATH".to_owned(), "/data/ml/code".to_owned()),
            ],
            cwd: "/opt/ml/code".into(),
            memory_bytes: 1,
            together: None,
            cpu_weight: 100,
            pids: 1,
            addresses: Vec::new(),
            has_proxy: false,
        };
        install_first(&mut spec, &Support::processes_only(), true);
        assert_eq!(spec.command[..3], ["python3", "-I", "-c"]);
        assert_eq!(spec.command[4..], ["/data/ml/package", LACKS, "/usr/bin/shoal", "mpi", "wait"]);
        let variable = |name: &str| spec.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(variable("PATH"), Some("/data/ml/package/bin:/usr/bin"));
        assert_eq!(variable("PYTHONPATH"), Some("/data/ml/package:/data/ml/code"));
    }
}
