//! What an instance sees of the caller's files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use shoal_sandbox::{Mount, SandboxError};

use crate::Test;
use crate::stage::{Outcome, Stage, ended, is_root};

pub(crate) const TESTS: &[Test] = &[
    ("what_is_bound_is_writable_and_the_programs_own", what_is_bound_is_writable_and_the_programs_own),
    ("files_with_other_names_keep_their_owner", files_with_other_names_keep_their_owner),
    ("what_is_read_only_cannot_be_changed", what_is_read_only_cannot_be_changed),
    ("an_overlay_never_changes_what_is_below", an_overlay_never_changes_what_is_below),
    ("names_with_commas_and_colons_can_be_mounted", names_with_commas_and_colons_can_be_mounted),
    ("a_file_system_without_id_maps_is_told", a_file_system_without_id_maps_is_told),
    ("single_files_can_be_mounted", single_files_can_be_mounted),
    ("a_missing_source_is_named", a_missing_source_is_named),
    ("links_on_the_way_to_a_target_are_refused", links_on_the_way_to_a_target_are_refused),
];

fn what_is_bound_is_writable_and_the_programs_own(stage: &Stage) -> Outcome {
    let instance = stage
        .shell("echo new >>code/old && mkdir model && echo m >model/m && chmod 700 code && stat -c %U . code code/old");
    let code = instance.directory("ml/code");
    fs::write(code.join("old"), "old\n").unwrap();
    fs::set_permissions(code.join("old"), fs::Permissions::from_mode(0o600)).unwrap();
    let ended = stage.finish(&instance);
    assert_eq!(ended.exit.code, Some(0), "{ended:?}");
    if stage.is_full() {
        assert_eq!(ended.stdout, "shoal\nshoal\nshoal\n");
    }
    assert_eq!(fs::read_to_string(code.join("old")).unwrap(), "old\nnew\n");
    assert_eq!(fs::read_to_string(instance.ml().join("model/m")).unwrap(), "m\n");
    Ok(())
}

fn files_with_other_names_keep_their_owner(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    if !is_root() {
        return Err("only root gives files away".to_owned());
    }
    let instance = stage.shell("cat linked; echo spoiled >linked");
    let object = instance.dir.path().join("object");
    fs::write(&object, "stored\n").unwrap();
    fs::hard_link(&object, instance.ml().join("linked")).unwrap();
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, ended.exit.code.is_some_and(|code| code != 0)), ("stored\n", true), "{ended:?}");
    assert_eq!(
        (fs::read_to_string(&object).unwrap(), fs::metadata(&object).unwrap().uid()),
        ("stored\n".to_owned(), 0)
    );
    Ok(())
}

fn what_is_read_only_cannot_be_changed(stage: &Stage) -> Outcome {
    let mut instance =
        stage.shell("cat $LIB/private; (echo x >$LIB/private) 2>/dev/null || echo refused; touch $LIB/new 2>/dev/null || echo refused");
    let library = instance.directory("library");
    fs::write(library.join("private"), "shown\n").unwrap();
    // Shown to the program although nobody but its owner may read it: that is what mounting it
    // means.
    fs::set_permissions(library.join("private"), fs::Permissions::from_mode(0o400)).unwrap();
    instance.spec.mounts.push(Mount::ReadOnly { source: library, target: "/opt/library".into() });
    let path = stage.support.path_of(&instance.spec.mounts, Path::new("/opt/library"));
    instance.spec.env.push(("LIB".to_owned(), path.display().to_string()));
    let ended = stage.finish(&instance);
    if stage.is_full() {
        assert_eq!((&*ended.stdout, &*ended.stderr), ("shown\nrefused\nrefused\n", ""));
    } else {
        assert!(ended.stdout.starts_with("shown\n"), "{ended:?}");
    }
    Ok(())
}

fn an_overlay_never_changes_what_is_below(stage: &Stage) -> Outcome {
    let script = "cd $TRAIN && cat a.csv b/c.csv && echo more >>a.csv && rm b/c.csv && echo new >b/d.csv && mv a.csv z.csv && cat z.csv && ls b";
    let mut instance = stage.shell(script);
    let (lower, scratch) = (instance.directory("lower"), instance.directory("scratch"));
    fs::create_dir(lower.join("b")).unwrap();
    // Objects are nobody's business but their store's, and links to other places of it.
    let object = instance.dir.path().join("object");
    fs::write(&object, "a\n").unwrap();
    fs::set_permissions(&object, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&object, lower.join("a.csv")).unwrap();
    fs::write(lower.join("b/c.csv"), "c\n").unwrap();
    let target = Path::new("/opt/ml/input/data/train");
    instance.spec.mounts.push(Mount::Overlay { lower: lower.clone(), scratch: scratch.clone(), target: target.into() });
    let path = stage.support.path_of(&instance.spec.mounts, target);
    instance.spec.env.push(("TRAIN".to_owned(), path.display().to_string()));
    if stage.is_full() && !stage.support.overlay {
        return Err("no overlay can be had here".to_owned());
    }
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, &*ended.stderr, ended.exit.code), ("a\nc\na\nmore\nd.csv\n", "", Some(0)));
    assert_eq!(fs::read_to_string(&object).unwrap(), "a\n");
    assert_eq!(fs::read_to_string(lower.join("a.csv")).unwrap(), "a\n");
    assert_eq!(
        fs::read_dir(lower.join("b")).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>(),
        ["c.csv"]
    );
    // The caller can throw the layer away with ordinary means.
    fs::remove_dir_all(&scratch).unwrap();
    if !stage.is_full() {
        let link = instance.ml().join("input/data/train");
        assert_eq!(fs::read_link(link).unwrap(), path);
    }
    Ok(())
}

fn names_with_commas_and_colons_can_be_mounted(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("cat \"$TRAIN/a\" && echo b >\"$TRAIN/b\" && echo written");
    let (lower, scratch) = (instance.directory("lo,wer:x"), instance.directory("scr,atch:y\\z"));
    fs::write(lower.join("a"), "a\n").unwrap();
    let target = Path::new("/opt/ml/input/data/tr:ain,1");
    instance.spec.mounts.push(Mount::Overlay { lower, scratch, target: target.into() });
    let path = stage.support.path_of(&instance.spec.mounts, target);
    instance.spec.env.push(("TRAIN".to_owned(), path.display().to_string()));
    if stage.is_full() && !stage.support.overlay {
        return Err("no overlay can be had here".to_owned());
    }
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("a\nwritten\n", ""));
    Ok(())
}

fn a_file_system_without_id_maps_is_told(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    if !is_root() {
        return Err("without root nothing is shown as another user's".to_owned());
    }
    let script = "cat public; cat private; (echo x >public) 2>/dev/null || echo refused";
    let mut instance = stage.shell(script);
    let [lower, upper, work, merged, scratch] =
        ["lower", "upper", "work", "merged", "scratch"].map(|name| instance.directory(name));
    for (name, mode) in [("public", 0o644), ("private", 0o600)] {
        fs::write(lower.join(name), format!("{name}\n")).unwrap();
        fs::set_permissions(lower.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    // As a data directory in a container may be: an overlay, which cannot be shown as another
    // user's.
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let mounted = Command::new("mount").args(["-t", "overlay", "-o", &options, "overlay"]).arg(&merged).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return Err("this machine's root may not mount an overlay".to_owned());
    }
    instance.spec.mounts.push(Mount::Overlay { lower: merged.clone(), scratch, target: "/opt/data".into() });
    instance.spec.cwd = "/opt/data".into();
    let started = stage.start(&instance);
    assert!(Command::new("umount").arg(&merged).status().unwrap().success());
    let sandbox = started.unwrap();
    assert!(sandbox.notes().iter().any(|note| note.contains("everybody may read")), "{:?}", sandbox.notes());
    assert_eq!(ended(sandbox).stdout, "public\nrefused\n");
    Ok(())
}

fn single_files_can_be_mounted(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let file = instance.dir.path().join("tool");
    fs::write(&file, "#!/bin/sh\necho $0 works\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    instance.spec.mounts.push(Mount::ReadOnly { source: file, target: "/opt/tools/bin/tool".into() });
    instance.spec.command = vec!["/opt/tools/bin/tool".to_owned()];
    let shown = stage.support.path_of(&instance.spec.mounts, Path::new("/opt/tools/bin/tool"));
    assert_eq!(stage.finish(&instance).stdout, format!("{} works\n", shown.display()));
    Ok(())
}

fn a_missing_source_is_named(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let mut instance = stage.shell("exit 0");
    instance.spec.mounts.push(Mount::ReadOnly { source: "/no/such/library".into(), target: "/opt/library".into() });
    let error = stage.start(&instance).unwrap_err();
    assert!(matches!(&error, SandboxError::Helper { message, .. } if message.contains("/no/such/library")), "{error}");
    Ok(())
}

fn links_on_the_way_to_a_target_are_refused(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let mut instance = stage.shell("exit 0");
    let (victim, library) = (instance.directory("victim"), instance.directory("library"));
    // What an earlier program of the same job may have left in its place.
    symlink(&victim, instance.ml().join("input")).unwrap();
    instance.spec.mounts.push(Mount::ReadOnly { source: library, target: "/opt/ml/input/data/train".into() });
    let error = stage.start(&instance).unwrap_err();
    assert!(
        matches!(&error, SandboxError::Helper { message, .. } if message.contains("/opt/ml/input is a symbolic link")),
        "{error}"
    );
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    Ok(())
}
