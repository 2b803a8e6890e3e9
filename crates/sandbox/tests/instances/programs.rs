//! Starting programs, their ends, their output, what they inherit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use shoal_sandbox::SandboxError;

use crate::Test;
use crate::stage::{Outcome, Stage, first_line};

pub(crate) const TESTS: &[Test] = &[
    ("exit_codes_and_signals", exit_codes_and_signals),
    ("output_and_error_are_kept_apart", output_and_error_are_kept_apart),
    ("large_output_arrives_whole", large_output_arrives_whole),
    ("the_program_can_open_its_own_output", the_program_can_open_its_own_output),
    ("terminate_lets_the_program_finish", terminate_lets_the_program_finish),
    ("terminate_is_for_the_program_alone", terminate_is_for_the_program_alone),
    ("a_waiting_owner_can_kill_from_another_thread", a_waiting_owner_can_kill_from_another_thread),
    ("an_instance_outlives_the_thread_that_started_it", an_instance_outlives_the_thread_that_started_it),
    ("programs_that_cannot_be_started_are_explained", programs_that_cannot_be_started_are_explained),
    ("nothing_is_inherited", nothing_is_inherited),
    ("a_large_environment_arrives", a_large_environment_arrives),
    ("many_at_once", many_at_once),
    ("ids_are_names", ids_are_names),
];

fn exit_codes_and_signals(stage: &Stage) -> Outcome {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 7", Some(7), None),
        ("exit 255", Some(255), None),
        ("kill -KILL $$", None, Some(9)),
        ("kill -TERM $$", None, Some(15)),
        ("kill -SEGV $$", None, Some(11)),
    ] {
        let exit = stage.run(script).exit;
        assert_eq!((exit.code, exit.signal, exit.out_of_memory), (code, signal, None), "{script}");
    }
    Ok(())
}

fn output_and_error_are_kept_apart(stage: &Stage) -> Outcome {
    let ended = stage.run("echo out; echo err >&2; echo out again");
    assert_eq!((&*ended.stdout, &*ended.stderr), ("out\nout again\n", "err\n"));
    Ok(())
}

fn large_output_arrives_whole(stage: &Stage) -> Outcome {
    let ended = stage.run("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2");
    assert_eq!((ended.stdout.len(), ended.stderr.len()), (3_000_000, 3_000_000));
    Ok(())
}

fn the_program_can_open_its_own_output(stage: &Stage) -> Outcome {
    let ended = stage.run("echo out >/dev/stdout; echo err >/dev/stderr");
    assert_eq!((&*ended.stdout, &*ended.stderr), ("out\n", "err\n"));
    Ok(())
}

fn terminate_lets_the_program_finish(stage: &Stage) -> Outcome {
    let mut sandbox =
        stage.start(&stage.shell("trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.01; done")).unwrap();
    let mut output = sandbox.stdout().unwrap();
    assert_eq!(first_line(&mut output), "ready");
    sandbox.terminate().unwrap();
    assert_eq!(first_line(&mut output), "saved");
    assert_eq!(sandbox.wait().unwrap().code, Some(3));
    // Nothing to be told, and no error.
    sandbox.terminate().unwrap();
    sandbox.kill();
    Ok(())
}

fn terminate_is_for_the_program_alone(stage: &Stage) -> Outcome {
    // A child that would die of the signal, and a program that would not.
    let script = "(sleep 1000; echo no) & child=$!; trap 'kill -0 $child && echo alive; exit 4' TERM; echo ready; while :; do sleep 0.01; done";
    let mut sandbox = stage.start(&stage.shell(script)).unwrap();
    let mut output = sandbox.stdout().unwrap();
    assert_eq!(first_line(&mut output), "ready");
    sandbox.control().terminate().unwrap();
    assert_eq!(first_line(&mut output), "alive");
    assert_eq!(sandbox.wait().unwrap().code, Some(4));
    Ok(())
}

fn a_waiting_owner_can_kill_from_another_thread(stage: &Stage) -> Outcome {
    let mut sandbox = stage.start(&stage.shell("trap '' TERM; echo ready; sleep 1000")).unwrap();
    let control = sandbox.control();
    let mut output = sandbox.stdout().unwrap();
    let killer = thread::spawn(move || {
        let line = first_line(&mut output);
        control.terminate().unwrap();
        control.kill();
        line
    });
    let exit = sandbox.wait().unwrap();
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
    assert_eq!(killer.join().unwrap(), "ready");
    Ok(())
}

fn an_instance_outlives_the_thread_that_started_it(stage: &Stage) -> Outcome {
    let instance = stage.shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    let mut sandbox = thread::scope(|scope| scope.spawn(|| stage.start(&instance).unwrap()).join().unwrap());
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "ready");
    sandbox.terminate().unwrap();
    assert_eq!(sandbox.wait().unwrap().code, Some(5));
    Ok(())
}

fn programs_that_cannot_be_started_are_explained(stage: &Stage) -> Outcome {
    let files = [
        ("plain.sh", 0o644, "#!/bin/sh\n"),
        ("shebang.sh", 0o755, "#!/usr/bin/no-such-shell -e\n"),
        ("windows.sh", 0o755, "#!/bin/sh\r\n"),
        ("garbage", 0o755, "neither one nor the other\n"),
    ];
    for (command, code, words) in [
        (vec![], 127, "empty"),
        (
            vec!["no-such-program"],
            127,
            "no-such-program is in none of the instance's directories /usr/local/bin:/usr/bin:/bin",
        ),
        (vec!["/opt/ml/no-such-file"], 127, "does not exist"),
        (vec!["/opt/ml/plain.sh"], 126, "chmod +x"),
        (vec!["/opt/ml/shebang.sh"], 127, "the interpreter /usr/bin/no-such-shell"),
        (vec!["/opt/ml/windows.sh"], 127, "/bin/sh\\r"),
        (vec!["/opt/ml/garbage"], 126, "#!/bin/sh"),
        (vec!["/opt/ml"], 126, "is a directory"),
    ] {
        let mut instance = stage.shell("");
        for (name, mode, text) in files {
            let path = instance.ml().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        instance.spec.command = command.iter().map(|part| (*part).to_owned()).collect();
        match stage.start(&instance) {
            Err(SandboxError::Program { message, code: found }) => {
                assert!(found == code && message.contains(words), "{command:?}: {found}, {message}");
            }
            other => panic!("{command:?}: {other:?}"),
        }
    }
    let mut instance = stage.shell("exit 0");
    instance.spec.cwd = "/opt/ml/nowhere".into();
    let error = stage.start(&instance).unwrap_err();
    assert!(matches!(&error, SandboxError::Program { message, code: 126 } if message.contains("nowhere")), "{error}");
    Ok(())
}

fn nothing_is_inherited(stage: &Stage) -> Outcome {
    let mut instance =
        stage.shell("umask; env | grep -v -e PWD= -e SHLVL= -e _= -e SHOAL_INSTANCE= | sort; ls /proc/self/fd | wc -l; wc -c; ulimit -c");
    instance.spec.env.push(("GREETING".to_owned(), "hello = world".to_owned()));
    let ended = stage.finish(&instance);
    // The descriptors are the three standard ones and that of the directory being listed; standard
    // input is empty.
    let expected = "0022\nGREETING=hello = world\nPATH=/usr/local/bin:/usr/bin:/bin\n4\n0\n0\n";
    assert_eq!((&*ended.stdout, &*ended.stderr), (expected, ""));
    let session = stage.run("read -r _ _ _ _ group session _ </proc/$$/stat; echo $(($$ - group)) $(($$ - session))");
    assert_eq!(session.stdout, "0 0\n");
    // A pipe whose reader leaves must end a program as it does everywhere.
    assert_eq!(stage.run("yes | head -n 1").stdout, "y\n");
    // All but the two signals that glibc keeps for itself and lets be ignored in whatever it
    // spawns.
    let ignored = stage.run("grep -e SigIgn -e SigBlk /proc/self/status | cut -f 2 | tr 8 0 | tr 1 0 | sort -u");
    assert_eq!(ignored.stdout, "0000000000000000\n");
    Ok(())
}

fn a_large_environment_arrives(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("env | wc -c");
    instance.spec.env.extend((0..1000).map(|number| (format!("V{number:03}"), "x".repeat(1000))));
    let size: usize = stage.finish(&instance).stdout.trim().parse().unwrap();
    assert!(size > 1000 * 1006, "{size}");
    Ok(())
}

fn many_at_once(stage: &Stage) -> Outcome {
    thread::scope(|scope| {
        let runs: Vec<_> = (0..12)
            .map(|number| scope.spawn(move || (number, stage.run(&format!("exit {number}")).exit.code)))
            .collect();
        for run in runs {
            let (number, code) = run.join().unwrap();
            assert_eq!(code, Some(number));
        }
    });
    Ok(())
}

fn ids_are_names(stage: &Stage) -> Outcome {
    for id in ["", "../up", "a/b", ".hidden", "white space"] {
        let mut instance = stage.shell("exit 0");
        instance.spec.id = id.to_owned();
        assert!(matches!(stage.start(&instance), Err(SandboxError::BadId { .. } | SandboxError::Io { .. })), "{id:?}");
    }
    Ok(())
}
