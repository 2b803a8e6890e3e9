//! Instances that are frozen, and zygotes.

use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use shoal_sandbox::{Exit, HOME, Mount, Ran, Sandbox, Zygote, give, line_of_zygote, serve_as_zygote};

use crate::Test;
use crate::stage::{Instance, Outcome, Stage, ended, first_line, processes_with, until};

pub(crate) const TESTS: &[Test] = &[
    ("frozen_programs_stand_still_and_go_on", stand_still),
    ("frozen_programs_can_be_ended", can_be_ended),
    ("zygote_runs_see_nothing_of_each_other", see_nothing),
    ("zygote_prepares_once", prepares_once),
    ("zygote_run_is_terminated_alone", terminated_alone),
    ("zygote_that_is_killed_takes_all_along", takes_all_along),
];

/// Writes a line every 5 ms, from a grandchild.
const TICKS: &str = "sh -c 'while :; do echo tick >> ticks; sleep 0.005; done' & echo up; wait";

fn ticks(instance: &Instance) -> u64 {
    std::fs::metadata(instance.ml().join("ticks")).map_or(0, |file| file.len())
}

/// Runs `TICKS` until it is seen to tick, and freezes it.
fn frozen(stage: &Stage, instance: &Instance) -> Sandbox {
    let sandbox = stage.start(instance).unwrap();
    until("the first ticks", || ticks(instance) > 50);
    sandbox.control().freeze().unwrap();
    standstill(instance);
    sandbox
}

/// Waits for a freeze, whose order is on its way for a moment; how many ticks there are then. Half
/// a second without a tick, of which there may be a hundred, is no pause of a busy machine's.
fn standstill(instance: &Instance) -> u64 {
    let mut before = u64::MAX;
    until("the standstill", || {
        sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, ticks(instance)) == ticks(instance)
    });
    before
}

fn stand_still(stage: &Stage) -> Outcome {
    let instance = stage.shell(TICKS);
    let sandbox = frozen(stage, &instance);
    for _ in 0..3 {
        let before = standstill(&instance);
        // Orders may be repeated.
        sandbox.control().freeze().unwrap();
        sleep(Duration::from_millis(100));
        assert_eq!(ticks(&instance), before);
        sandbox.control().thaw().unwrap();
        until("more ticks", || ticks(&instance) > before + 50);
        sandbox.control().freeze().unwrap();
    }
    sandbox.kill();
    assert_eq!(ended(sandbox).exit.signal, Some(9));
    Ok(())
}

fn can_be_ended(stage: &Stage) -> Outcome {
    let script = format!("trap 'echo bye; exit 5' TERM; {TICKS}");
    for kill in [true, false] {
        let instance = stage.shell(&script);
        let sandbox = frozen(stage, &instance);
        if kill {
            sandbox.kill();
        } else {
            sandbox.terminate().unwrap();
            sandbox.control().thaw().unwrap();
        }
        let ended = ended(sandbox);
        if kill {
            assert_eq!(ended.exit.signal, Some(9));
        } else {
            assert_eq!((ended.exit.code, &*ended.stdout), (Some(5), "up\nbye\n"));
        }
        assert_eq!(processes_with(&instance.spec.id), [""; 0]);
    }
    Ok(())
}

/// What `main` calls for a zygote: each run is the shell script in its environment, between what
/// was prepared and how it ended.
pub(crate) fn play_zygote() -> i32 {
    let prepared = std::cell::Cell::new(0);
    let prepare = || {
        if std::env::var("PREPARE").is_ok() {
            prepared.set(prepared.get() + 1);
        }
    };
    let program = || {
        println!("prepared {}", prepared.get());
        let script = std::env::var("SCRIPT").unwrap();
        if script == "panic" {
            panic!("as asked");
        }
        Command::new("/bin/sh").args(["-c", &script]).status().unwrap().code().unwrap_or(99)
    };
    serve_as_zygote(&line_of_zygote().unwrap(), prepare, program)
}

fn zygote(stage: &Stage) -> Result<(Instance, Zygote), String> {
    stage.needs_namespaces()?;
    let mut instance = stage.shell("");
    let executable = instance.dir.path().join("executable");
    std::fs::copy("/proc/self/exe", &executable).unwrap();
    instance.spec.mounts.push(Mount::ReadOnly { source: executable.clone(), target: "/opt/test".into() });
    // As a library's directory may be.
    instance.spec.mounts.push(Mount::ReadOnly { source: executable, target: "/tmp/with a blank/a mount".into() });
    instance.spec.command = vec!["/opt/test".to_owned(), "play".to_owned(), "zygote".to_owned()];
    let zygote = Zygote::start(&instance.spec, &instance.network, &stage.support).unwrap();
    Ok((instance, zygote))
}

fn env(script: &str) -> Vec<(String, String)> {
    [("PATH", "/usr/bin:/bin"), ("SCRIPT", script)].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn run(zygote: &mut Zygote, script: &str) -> (String, Exit) {
    let (mut stdout, mut stderr) = zygote.run(&env(script)).unwrap();
    let Ran::Over(exit) = zygote.wait().unwrap() else { panic!("{script}: the zygote has ended") };
    let (mut text, mut error) = (String::new(), String::new());
    stdout.read_to_string(&mut text).unwrap();
    stderr.read_to_string(&mut error).unwrap();
    (text.replace("prepared 0\n", "") + &error, exit)
}

fn see_nothing(stage: &Stage) -> Outcome {
    let (instance, mut zygote) = zygote(stage)?;
    let places = format!("/tmp /var/tmp /run {HOME} /dev/shm");
    let leave = format!(
        "for d in {places}; do mkdir -p $d/deep/er; echo left > $d/deep/er/file; chmod 000 $d/deep; done; \
         (setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &) ; export LEFT=1; umask 077; echo done; exit 3"
    );
    let look = format!(
        "ps -e -o comm= 2>/dev/null | grep -c sleep; find {places} -mindepth 1 ! -path '/tmp/with a blank*'; echo ${{LEFT-none}}; echo $$ > /opt/ml/seen"
    );
    for _ in 0..3 {
        let (text, exit) = run(&mut zygote, &leave);
        assert_eq!((&*text, exit.code), ("done\n", Some(3)));
        // What was killed is gone by the time that the end is told.
        until("the end of sleep", || !processes_with("sleep 1000").iter().any(|line| line.starts_with("sleep")));
        let (text, exit) = run(&mut zygote, &look);
        assert_eq!((&*text, exit.code), ("0\nnone\n", Some(0)));
        assert!(instance.ml().join("seen").exists());
    }
    let (text, exit) = run(&mut zygote, "panic");
    assert!(text.contains("as asked") && exit.code == Some(101), "{text} {exit:?}");
    assert_eq!(run(&mut zygote, "kill -9 $PPID").1.signal, Some(9));
    // What is put there from outside later belongs to the program all the same.
    std::fs::create_dir(instance.ml().join("later")).unwrap();
    give(&instance.ml(), &stage.support).unwrap();
    assert_eq!(run(&mut zygote, "echo 1 > /opt/ml/later/file").1.code, Some(0));
    Ok(())
}

fn prepares_once(stage: &Stage) -> Outcome {
    let (_instance, mut zygote) = zygote(stage)?;
    for expected in 1..4 {
        let mut env = env("true");
        env.push(("PREPARE".to_owned(), "1".to_owned()));
        let (mut stdout, _stderr) = zygote.run(&env).unwrap();
        assert!(matches!(zygote.wait().unwrap(), Ran::Over(Exit { code: Some(0), .. })));
        let mut text = String::new();
        stdout.read_to_string(&mut text).unwrap();
        // What one run's preparation has made is there in the next.
        assert_eq!(text, format!("prepared {expected}\n"));
    }
    Ok(())
}

fn terminated_alone(stage: &Stage) -> Outcome {
    let (instance, mut zygote) = zygote(stage)?;
    let control = zygote.control();
    for frozen in [false, true] {
        let (stdout, _stderr) = zygote.run(&env("echo up; sleep 1000")).unwrap();
        let waiter = std::thread::spawn(move || (zygote.wait(), zygote));
        let mut lines = BufReader::new(stdout).lines();
        assert_eq!(lines.by_ref().nth(1).unwrap().unwrap(), "up");
        // A signal in a run's first instant, before the zygote has told whom it forked, ends the
        // zygote along with it.
        sleep(Duration::from_millis(500));
        if frozen {
            control.freeze().unwrap();
            sleep(Duration::from_millis(500));
        }
        control.terminate().unwrap();
        if frozen {
            sleep(Duration::from_millis(50));
            assert!(!waiter.is_finished(), "what is frozen does not end");
            control.thaw().unwrap();
        }
        let (ran, again) = waiter.join().unwrap();
        zygote = again;
        // A shell whose command was ended first may tell that by its own exit code.
        let ran = ran.unwrap();
        assert!(
            matches!(ran, Ran::Over(Exit { signal: Some(15), .. } | Exit { code: Some(143), .. })),
            "frozen {frozen}: {ran:?}"
        );
        // Too late for the run that was meant, and nothing to the next.
        control.terminate().unwrap();
        assert_eq!(run(&mut zygote, "echo $((1 + 1))").0, "2\n");
    }
    drop(zygote);
    assert_eq!(processes_with(&instance.spec.id), [""; 0]);
    Ok(())
}

fn takes_all_along(stage: &Stage) -> Outcome {
    let (instance, mut zygote) = zygote(stage)?;
    let (mut stdout, _stderr) = zygote.run(&env("echo up; sleep 1000")).unwrap();
    assert_eq!(first_line(&mut stdout), "prepared 0");
    assert_eq!(first_line(&mut stdout), "up");
    zygote.control().kill();
    assert!(matches!(zygote.wait().unwrap(), Ran::Gone { began: true, exit: Exit { signal: Some(9), .. } }));
    zygote.run(&env("true")).unwrap_err();
    assert_eq!(processes_with(&instance.spec.id), [""; 0]);
    Ok(())
}
