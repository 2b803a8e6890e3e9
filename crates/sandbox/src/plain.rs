//! Instances where no namespaces can be had: plain processes that find their mounts elsewhere.
//!
//! What would be mounted stays where it is; what would be mounted inside of something writable is
//! linked into it. So a program that takes the base directory of its files from its environment
//! finds everything below that.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::COPY;
use crate::talk::Mode;
use crate::{Mount, SandboxError, SandboxSpec};

/// In the environment of plain processes: the instance's id, by which [`crate::sweep()`] finds
/// those that nothing else leads to.
pub(crate) const MARK: &str = "SHOAL_INSTANCE";

/// Where files of a container's image are whose place is taken.
const ASIDE: &str = "/opt/shoal/image";

/// Where a path of the instance is on the machine.
pub(crate) fn path_of(mounts: &[Mount], path: &Path) -> PathBuf {
    let inside = |mount: &&Mount| path.starts_with(mount.target());
    // The innermost mount, and of equals the last, as it would lie on top.
    match mounts.iter().filter(inside).max_by_key(|mount| mount.target().components().count()) {
        Some(mount) => {
            let rest = path.strip_prefix(mount.target()).expect("only mounts around the path were kept");
            if rest.as_os_str().is_empty() { on_machine(mount) } else { on_machine(mount).join(rest) }
        }
        None => path.to_owned(),
    }
}

/// Without an overlay, the throw-away layer is a copy.
fn on_machine(mount: &Mount) -> PathBuf {
    match mount {
        Mount::Bind { source, .. } | Mount::ReadOnly { source, .. } => source.clone(),
        Mount::Overlay { scratch, .. } => scratch.join("copy"),
        Mount::Shared { root, below, .. } => root.join(below),
    }
}

/// Makes what is mounted findable, and the description one of a plain process. In a container, each
/// is linked at its own place. Gives what is not as it was asked for.
pub(crate) fn arrange(spec: SandboxSpec, mode: Mode) -> Result<(SandboxSpec, Vec<String>), SandboxError> {
    if spec.mounts.iter().any(Mount::is_root) {
        let source = io::Error::other("it needs namespaces, and this machine gives none (`shoal doctor` says why)");
        return Err(SandboxError::Io { what: "run an image".to_owned(), source });
    }
    for (index, mount) in spec.mounts.iter().enumerate() {
        let place = on_machine(mount);
        mount.open_shared().map_err(SandboxError::io(format!("open {} without links", place.display())))?;
        if let Mount::Overlay { lower, .. } = mount {
            copy(lower, &place)
                // A part of it is of no use, and takes space from others.
                .inspect_err(|_| drop(fs::remove_dir_all(&place)))
                .map_err(SandboxError::io(format!("{COPY}{} to {}", lower.display(), place.display())))?;
        }
        let at = match mode {
            Mode::Container => (mount.target() != place).then(|| mount.target().to_owned()),
            _ => Some(path_of(&spec.mounts[..index], mount.target())).filter(|around| around != mount.target()),
        };
        if let Some(at) = at {
            let linked = match mode {
                // What others own gets no files of the image.
                Mode::Container if matches!(mount, Mount::Shared { .. }) => hide(&at).and_then(|()| link(&place, &at)),
                Mode::Container => link_in_container(&place, &at, Path::new(ASIDE)),
                _ => link(&place, &at),
            };
            linked.map_err(SandboxError::io(format!("link {} to {}", at.display(), place.display())))?;
        }
    }
    let hosts = if mode == Mode::Container { name_hosts(&spec, Path::new("/etc/hosts")) } else { Ok(()) };
    let note = |error| format!("/etc/hosts cannot be written ({error}): the instances' names are the cluster's DNS's");
    Ok((find(spec, mode), Vec::from_iter(hosts.err().map(note))))
}

/// The description with paths of the machine, once all of it is arranged.
pub(crate) fn find(mut spec: SandboxSpec, mode: Mode) -> SandboxSpec {
    if mode == Mode::Processes {
        spec.cwd = path_of(&spec.mounts, &spec.cwd);
        if let Some(program) = spec.command.first_mut().filter(|program| program.starts_with('/')) {
            *program = path_of(&spec.mounts, Path::new(program)).to_string_lossy().into_owned();
        }
    }
    spec.env.push((MARK.to_owned(), spec.id.clone()));
    spec
}

/// Adds the instances of a job to a list of hosts, where they are on several machines.
fn name_hosts(spec: &SandboxSpec, file: &Path) -> io::Result<()> {
    let known = if spec.addresses.is_empty() { String::new() } else { fs::read_to_string(file)? };
    let lines = spec.addresses.iter().zip(&spec.hosts).map(|(address, name)| format!("{address} {name}"));
    // An instance that serves one attempt after another has them already.
    let new = lines.filter(|line| !known.lines().any(|known| known == line));
    let text: String = new.map(|line| format!("{line}\n")).collect();
    if text.is_empty() {
        return Ok(());
    }
    fs::OpenOptions::new().append(true).open(file)?.write_all(text.as_bytes())
}

/// What would have been mounted on, a directory or a file, gives way to the link.
fn link(to: &Path, at: &Path) -> io::Result<()> {
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::symlink_metadata(at) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(at)?,
        Ok(_) => fs::remove_file(at)?,
        Err(_) => {}
    }
    symlink(to, at)
}

/// What an image has there is not seen, as below a mount.
fn hide(at: &Path) -> io::Result<()> {
    match fs::symlink_metadata(at) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(at),
        _ => Ok(()),
    }
}

/// The same in a container, whose image may have files there: they are put aside, and join what is
/// linked; also for later attempts.
fn link_in_container(to: &Path, at: &Path, aside: &Path) -> io::Result<()> {
    let aside = aside.join(at.strip_prefix("/").unwrap_or(at));
    let is_directory = fs::symlink_metadata(at).is_ok_and(|metadata| metadata.is_dir());
    // An empty one is made for the link.
    if is_directory && to.is_dir() && fs::remove_dir(at).is_err() {
        copy(at, &aside)?;
        fs::remove_dir_all(at)?;
    }
    if to.is_dir() && aside.is_dir() {
        join(&aside, to)?;
    }
    link(to, at)
}

/// Copies what `into` lacks.
fn join(from: &Path, into: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), into.join(entry.file_name()));
        match fs::symlink_metadata(&target) {
            Ok(known) if known.is_dir() && entry.file_type()?.is_dir() => join(&source, &target)?,
            Ok(_) => {}
            Err(_) if entry.file_type()?.is_symlink() => symlink(fs::read_link(&source)?, target)?,
            Err(_) => copy(&source, &target)?,
        }
    }
    Ok(())
}

/// Follows links: the tree may consist of them. `fs::copy` shares the blocks where the file system
/// can.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::metadata(from)?.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn mounts() -> Vec<Mount> {
        vec![
            Mount::Bind { source: "/data/ml".into(), target: "/opt/ml".into() },
            Mount::Overlay {
                lower: "/data/tree".into(),
                scratch: "/data/s".into(),
                target: "/opt/ml/input/data/train".into(),
            },
            Mount::ReadOnly { source: "/cache/xgb".into(), target: "/cache/xgb".into() },
        ]
    }

    #[test]
    fn the_innermost_mount_says_where_a_path_is() {
        for (path, expected) in [
            ("/opt/ml", "/data/ml"),
            ("/opt/ml/model/a", "/data/ml/model/a"),
            ("/opt/ml/input/data/train", "/data/s/copy"),
            ("/opt/ml/input/data/train/x.csv", "/data/s/copy/x.csv"),
            ("/opt/ml/input/data/training", "/data/ml/input/data/training"),
            ("/cache/xgb/lib", "/cache/xgb/lib"),
            ("/usr/bin/python3", "/usr/bin/python3"),
        ] {
            assert_eq!(path_of(&mounts(), Path::new(path)), Path::new(expected), "{path}");
        }
    }

    fn spec(mounts: Vec<Mount>, addresses: Vec<Ipv4Addr>) -> SandboxSpec {
        SandboxSpec {
            id: "a-1".into(),
            hostname: "algo-1".into(),
            host: 1,
            hosts: vec!["algo-1".into(), "algo-2".into()],
            addresses,
            mounts,
            command: vec!["/opt/ml/code/run".into()],
            env: Vec::new(),
            cwd: "/opt/ml/code".into(),
            memory_bytes: 0,
            together: None,
            cpu_weight: 100,
            pids: 1,
            has_proxy: false,
        }
    }

    #[test]
    fn in_a_container_each_mount_is_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (ml, data, place) = (dir.path().join("home/ml"), dir.path().join("data"), dir.path().join("opt/ml"));
        fs::create_dir_all(ml.join("input/data/train")).unwrap();
        fs::create_dir(&data).unwrap();
        fs::write(data.join("x.csv"), "1").unwrap();
        let mounts = vec![
            Mount::Bind { source: ml, target: place.clone() },
            Mount::ReadOnly { source: data.clone(), target: place.join("input/data/train") },
            Mount::ReadOnly { source: data.clone(), target: data },
        ];
        for _ in 0..2 {
            let (found, notes) = arrange(spec(mounts.clone(), Vec::new()), Mode::Container).unwrap();
            assert_eq!((&*found.command[0], notes), ("/opt/ml/code/run", Vec::new()));
            assert_eq!(fs::read_to_string(place.join("input/data/train/x.csv")).unwrap(), "1");
            assert!(place.is_symlink());
            assert_eq!(found.env, [(MARK.to_owned(), "a-1".to_owned())]);
        }
    }

    #[test]
    fn a_shared_directory_gets_nothing_of_a_containers_image() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, place) = (dir.path().join("shared"), dir.path().join("opt/data"));
        fs::create_dir_all(shared.join("set")).unwrap();
        fs::write(shared.join("set/x.csv"), "1").unwrap();
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("own"), "image's").unwrap();
        let mount = |below: &str| {
            let (root, target) = (shared.clone(), place.clone());
            vec![Mount::Shared { root, below: below.into(), target, is_writable: true }]
        };
        for _ in 0..2 {
            arrange(spec(mount("set"), Vec::new()), Mode::Container).unwrap();
            let names = |at: &Path| Vec::from_iter(fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name()));
            assert_eq!((names(&place), names(&shared.join("set"))), (vec!["x.csv".into()], vec!["x.csv".into()]));
        }
        let missing = arrange(spec(mount("none"), Vec::new()), Mode::Container).unwrap_err();
        assert!(missing.to_string().contains("without links"), "{missing}");
    }

    #[test]
    fn what_a_containers_image_has_there_joins_each_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let (place, aside) = (dir.path().join("opt/ml"), dir.path().join("aside"));
        for made in ["code", "own"] {
            fs::create_dir_all(place.join(made)).unwrap();
        }
        for file in ["code/a", "code/b"] {
            fs::write(place.join(file), "image's").unwrap();
        }
        for attempt in ["first", "second"] {
            let ml = dir.path().join(attempt);
            fs::create_dir_all(ml.join("code")).unwrap();
            fs::write(ml.join("code/a"), "job's").unwrap();
            link_in_container(&ml, &place, &aside).unwrap();
            assert_eq!(fs::read_link(&place).unwrap(), ml);
            let read = |path: &str| fs::read_to_string(place.join(path)).unwrap();
            assert_eq!([read("code/a"), read("code/b")], ["job's", "image's"], "{attempt}");
            assert!(place.join("own").is_dir());
        }
    }

    #[test]
    fn hosts_are_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        fs::write(&file, "127.0.0.1 localhost\n10.1.0.1 algo-1\n").unwrap();
        let named = spec(Vec::new(), vec![Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)]);
        for _ in 0..2 {
            name_hosts(&named, &file).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "127.0.0.1 localhost\n10.1.0.1 algo-1\n10.1.0.2 algo-2\n");
        name_hosts(&spec(Vec::new(), Vec::new()), Path::new("/nonexistent")).unwrap();
        name_hosts(&named, Path::new("/nonexistent")).unwrap_err();
    }
}
