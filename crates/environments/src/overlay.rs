//! What a job requires, laid over an environment: a virtual environment of its own that finds
//! everything of the one below.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Instant;

use crate::build::{now, seal, site_packages};
use crate::requirements::OURS;
use crate::run::run;
use crate::{EnvironmentError, Record, Source, Watcher, room};

/// Makes it in `directory`, which is not there yet. `requirements` are checked; `wheel` depends on
/// nothing.
#[expect(clippy::too_many_arguments, reason = "one caller, which has all of them by name")]
pub(crate) fn make(
    below: &Record,
    below_directory: &Path,
    requirements: &str,
    wheel: Option<&Path>,
    directory: &Path,
    source: &Source,
    lock: &File,
    watcher: &mut dyn Watcher,
) -> Result<Record, EnvironmentError> {
    let (begun, name) = (Instant::now(), &below.name);
    room::ensure(
        directory.parent().unwrap_or(directory),
        0,
        &format!("what the job requires over the environment {name}"),
    )?;
    watcher.line(&format!("installing what the job requires over the environment {name}, from {}", source.place()));
    let mut venv = source.command(&below_directory.join("bin/python"));
    venv.args(["-I", "-m", "venv", "--without-pip"]).arg(directory);
    run(venv, "python -m venv", name, lock, watcher)?;
    let site_packages = site_packages(directory, &below.python);
    let path_file = site_packages.join("below.pth");
    // Behind its own packages, so that those win. As Python's text, whatever the path has in it.
    let line = format!("import site; site.addsitedir({:?})\n", below.site_packages.to_string_lossy());
    fs::write(&path_file, line).map_err(EnvironmentError::io("write", &path_file))?;
    let python = directory.join("bin/python");
    if let Some(wheel) = wheel {
        run(source.install_wheel(&python, wheel), "pip install", name, lock, watcher)?;
        name_ours(&site_packages).map_err(EnvironmentError::io("write", &site_packages))?;
    }
    let file = directory.join("requirements.txt");
    fs::write(&file, requirements).map_err(EnvironmentError::io("write", &file))?;
    if !requirements.is_empty() {
        run(source.install_by_pip(&python, &file), "pip install", name, lock, watcher)?;
    }
    let bytes = seal(directory).map_err(EnvironmentError::io("make read-only", directory))?;
    watcher.line(&format!(
        "what the job requires is ready: {} MB in {:.0} s",
        bytes >> 20,
        begun.elapsed().as_secs_f64()
    ));
    Ok(Record { below: Some(below_directory.to_owned()), site_packages, bytes, made: now(), ..below.clone() })
}

/// Names what our wheel has of others' packages, so that pip takes what depends on those for
/// satisfied, and programs find their versions. The wheel cannot: it has one name.
fn name_ours(site_packages: &Path) -> io::Result<()> {
    for (name, module, version) in OURS.iter().filter(|(_, module, _)| site_packages.join(module).is_dir()) {
        let info = site_packages.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
        fs::create_dir(&info)?;
        fs::write(
            info.join("METADATA"),
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {module} of Shoal's package\n"),
        )?;
        fs::write(info.join("INSTALLER"), "shoal\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_wheel_has_of_others_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for module in ["horovod", "smdistributed/dataparallel"] {
            fs::create_dir_all(dir.path().join(module)).unwrap();
        }
        name_ours(dir.path()).unwrap();
        let metadata = fs::read_to_string(dir.path().join("horovod-0.28.1.dist-info/METADATA")).unwrap();
        assert!(metadata.contains("\nName: horovod\nVersion: 0.28.1\n"), "{metadata}");
        assert!(dir.path().join("smdistributed_dataparallel-1.8.0.dist-info/INSTALLER").is_file());
        assert!(!dir.path().join("smdistributed_modelparallel-1.15.0.dist-info").exists());
    }
}
