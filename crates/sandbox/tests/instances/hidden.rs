//! What an instance must not see or be able to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::Test;
use crate::stage::{Outcome, Stage, is_root};

pub(crate) const TESTS: &[Test] = &[
    ("the_root_is_minimal_and_read_only", the_root_is_minimal_and_read_only),
    ("private_places_are_writable_and_empty", private_places_are_writable_and_empty),
    ("the_caller_and_its_files_are_out_of_sight", the_caller_and_its_files_are_out_of_sight),
    ("secrets_of_the_machines_root_are_unreadable", secrets_of_the_machines_root_are_unreadable),
    ("there_are_no_capabilities_and_no_way_to_any", there_are_no_capabilities_and_no_way_to_any),
    ("the_first_process_is_out_of_reach", the_first_process_is_out_of_reach),
    ("python_finds_its_world", python_finds_its_world),
];

fn the_root_is_minimal_and_read_only(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let ended = stage.run("ls -A /; for place in / /etc /usr /usr/bin /dev /opt /proc/sys/kernel /sys; do touch $place/x 2>/dev/null && echo written $place; done; true");
    let allowed = [
        "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin", "sys", "tmp",
        "usr", "var",
    ];
    let strange: Vec<_> = ended.stdout.lines().filter(|name| !allowed.contains(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    let mounts = stage.run(
        "cut -d ' ' -f 5,6 /proc/self/mountinfo | grep ' rw' | cut -d ' ' -f 1 | grep -v ^/dev/ | sort | tr '\\n' ' '",
    );
    assert_eq!(mounts.stdout, "/home/shoal /opt/ml /proc /run /tmp /var/tmp ");
    Ok(())
}

fn private_places_are_writable_and_empty(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    for place in ["/tmp", "/var/tmp", "/run", "/dev/shm", "/home/shoal"] {
        let script = format!(
            "ls -A {place} && echo x >{place}/x && echo 'echo run' >{place}/y && sh {place}/y && id -un && id -u"
        );
        // The second instance finds nothing of the first one.
        for _ in 0..2 {
            assert_eq!(stage.run(&script).stdout, "run\nshoal\n1000\n", "{place}");
        }
    }
    assert_eq!(
        stage.run("tty; test -c /dev/null && head -c 4 /dev/urandom | wc -c && echo gone >/dev/null").stdout,
        "not a tty\n4\n"
    );
    Ok(())
}

fn the_caller_and_its_files_are_out_of_sight(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let instance = stage.shell("ls \"$OUTSIDE\" 2>&1; ls /proc >/tmp/listed; grep -c '^[0-9]' /tmp/listed; ls -d /root /home/[!s]* /etc/shadow /boot /srv 2>/dev/null; ls /sys/class/net; cat /proc/self/cgroup | grep -c shoal");
    let mut instance = instance;
    let outside = instance.directory("outside");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    instance.spec.env.push(("OUTSIDE".to_owned(), outside.display().to_string()));
    let ended = stage.finish(&instance);
    // The first process, the shell and ls.
    let expected = format!("ls: cannot access '{}': No such file or directory\n3\neth0\nlo\n0\n", outside.display());
    assert_eq!(ended.stdout, expected);
    Ok(())
}

fn secrets_of_the_machines_root_are_unreadable(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    if !is_root() {
        return Err("needs root to have secrets".to_owned());
    }
    // Where every instance looks: the machine's own /usr.
    let secret = tempfile::Builder::new().prefix("shoal-secret-").tempfile_in("/usr/local").unwrap();
    fs::write(secret.path(), "secret").unwrap();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let path = secret.path().display();
    let ended = stage.run(&format!(
        "test -e {path} && echo seen; cat {path}; echo spoiled >{path}; chmod 644 {path}; rm -f {path}; ls /etc/ssl/private"
    ));
    assert_eq!(ended.stdout, "seen\n");
    assert_eq!(fs::read_to_string(secret.path()).unwrap(), "secret");
    Ok(())
}

fn there_are_no_capabilities_and_no_way_to_any(stage: &Stage) -> Outcome {
    let privileges = "grep -e NoNewPrivs /proc/self/status | cut -f 2";
    assert_eq!(stage.run(privileges).stdout, "1\n");
    stage.needs_namespaces()?;
    assert_eq!(stage.run("grep -e ^Cap /proc/self/status | cut -f 2 | sort -u").stdout, "0000000000000000\n");
    assert_eq!(stage.run("grep -e ^Cap /proc/1/status | cut -f 2 | sort -u").stdout, "0000000000000000\n");
    for attempt in [
        "unshare -U true",
        "unshare -m true",
        "mount -t tmpfs none /tmp",
        "umount /proc/sys",
        "hostname other",
        "chown 0 /tmp",
        "mknod /tmp/n c 1 3",
    ] {
        let ended = stage.run(&format!("{attempt} 2>/dev/null"));
        assert!(ended.exit.code.is_some_and(|code| code != 0 && code != 127), "{attempt}: {ended:?}");
    }
    Ok(())
}

fn the_first_process_is_out_of_reach(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let ended = stage.run(
        "kill -KILL 1; kill -STOP 1; ls /proc/1/fd /proc/1/root 2>/dev/null; cat /proc/1/maps 2>/dev/null; echo here",
    );
    assert_eq!((&*ended.stdout, ended.exit.code), ("here\n", Some(0)));
    Ok(())
}

fn python_finds_its_world(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    let python = stage.python()?;
    let code = "import getpass, multiprocessing, os, ssl, socket, tempfile\n\
                print(getpass.getuser(), os.getcwd(), socket.gethostname(), ssl.create_default_context() is not None)\n\
                print(multiprocessing.Pool(2).map(abs, [-1, -2]), tempfile.gettempdir())";
    let mut instance = stage.shell("");
    instance.spec.command = ["python3", "-c", code].map(str::to_owned).to_vec();
    let ended = stage.finish(&instance);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("shoal /opt/ml algo-1 True\n[1, 2] /tmp\n", ""), "{python}");
    Ok(())
}
