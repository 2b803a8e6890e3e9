//! Trees of images in the place of the machine's own files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use shoal_sandbox::Mount;

use crate::Test;
use crate::stage::{Instance, Outcome, Stage, ended};

pub(crate) const TESTS: &[Test] = &[
    ("an_image_is_all_that_there_is", an_image_is_all_that_there_is),
    ("links_of_an_image_lead_nowhere_else", links_of_an_image_lead_nowhere_else),
];

/// A shell, a few programs and what they load, all in the top directories.
fn fill(tree: &Path) {
    for program in ["sh", "cat", "ls", "id", "rm"] {
        copy(tree, &Path::new("/bin").join(program));
        let loads = Command::new("ldd").arg(Path::new("/bin").join(program)).output().unwrap();
        let loads = String::from_utf8(loads.stdout).unwrap();
        let libraries = loads.split_whitespace().filter(|word| word.starts_with('/'));
        libraries.for_each(|library| copy(tree, Path::new(library.strip_prefix("/usr").unwrap_or(library))));
    }
    fs::create_dir(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh").unwrap();
    fs::write(tree.join("etc/hosts"), "1.2.3.4 of-the-image\n").unwrap();
}

fn copy(tree: &Path, file: &Path) {
    let to = tree.join(file.strip_prefix("/").unwrap());
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(file, to).unwrap();
}

/// With its root in place, and ready to run `script`.
fn image(stage: &Stage, script: &str) -> Instance {
    let mut instance = stage.shell(script);
    let (lower, scratch) = (instance.directory("image"), instance.directory("layer"));
    fill(&lower);
    instance.spec.mounts.insert(0, Mount::Overlay { lower, scratch, target: "/".into() });
    instance
}

fn needs_an_overlay(stage: &Stage) -> Result<(), String> {
    stage.needs_namespaces()?;
    if stage.support.overlay { Ok(()) } else { Err("no overlay can be had here".to_owned()) }
}

fn an_image_is_all_that_there_is(stage: &Stage) -> Outcome {
    if !stage.is_full() {
        let Err(error) = stage.start(&image(stage, "true")) else { panic!("no image runs without namespaces") };
        assert!(format!("{error:?}").contains("run an image"), "{error:?}");
        return Ok(());
    }
    needs_an_overlay(stage)?;
    let script = "ls / /dev && cat /etc/passwd && cat /etc/hosts && id -un && echo mine >/usr-mine && cat /usr-mine && test ! -e /usr/bin && echo of-tmp >/tmp/x \
                  && echo m >/opt/ml/model && rm /bin/ls && echo done >/dev/null";
    let instance = image(stage, script);
    let tree = instance.dir.path().join("image");
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stderr, ended.exit.code), ("", Some(0)), "{ended:?}");
    for expected in [
        "root:x:0:0:root:/root:/bin/sh\nshoal:x:1000:1000:",
        "algo-1",
        "\nshoal\n",
        "\nmine\n",
        "urandom\n",
        "\nproc\n",
    ] {
        assert!(ended.stdout.contains(expected), "{expected:?} in {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("of-the-image"), "{}", ended.stdout);
    assert_eq!(fs::read_to_string(instance.ml().join("model")).unwrap(), "m\n");
    // The tree is as it was.
    assert!(tree.join("bin/ls").exists() && !tree.join("usr-mine").exists() && !tree.join("opt").exists());
    assert_eq!(fs::read_to_string(tree.join("etc/hosts")).unwrap(), "1.2.3.4 of-the-image\n");
    Ok(())
}

fn links_of_an_image_lead_nowhere_else(stage: &Stage) -> Outcome {
    needs_an_overlay(stage)?;
    for (link, is_refused) in
        [("etc/hosts", false), ("etc/passwd", false), ("tmp", true), ("opt", true), ("proc", true), ("dev", true)]
    {
        let instance = image(stage, "cat /etc/hosts");
        let outside = instance.directory("outside");
        let file = outside.join("file");
        fs::write(&file, "the machine's\n").unwrap();
        let path = instance.dir.path().join("image").join(link);
        let _ = fs::remove_file(&path);
        symlink(if link.starts_with("etc") { &file } else { &outside }, &path).unwrap();
        match stage.start(&instance) {
            Err(error) => {
                assert!(is_refused || link == "etc/passwd", "{link}: {error:?}");
                assert!(
                    !is_refused || format!("{error:?}").contains(&format!("/{link} is a symbolic link")),
                    "{error:?}"
                );
            }
            Ok(sandbox) => {
                assert!(!is_refused, "{link}");
                let ended = ended(sandbox);
                assert!(ended.stdout.contains("algo-1"), "{link}: {ended:?}");
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "the machine's\n", "{link}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{link}");
    }
    Ok(())
}
