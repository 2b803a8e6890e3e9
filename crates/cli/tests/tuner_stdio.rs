//! `shoal tuner --stdio` as a program in another language uses it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

fn tuner(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.arg("tuner").args(arguments);
    command
}

#[test]
fn a_search_over_a_pipe() {
    let mut child = tuner(&["--stdio", "sobol"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    let mut say = |request: Value| -> Value {
        writeln!(input, "{request}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert!(say(json!({"op": "ask"}))["error"].as_str().unwrap().contains("send init first"));
    let space = json!([{"name": "x", "type": "continuous", "min": -1, "max": 1}]);
    assert_eq!(say(json!({"op": "init", "space": space, "seed": 3})), json!({"ok": true}));
    let best = (0..64).fold(f64::INFINITY, |best, _| {
        let asked = say(json!({"op": "ask"}));
        let value = (asked["config"]["x"].as_f64().unwrap() - 0.3).abs();
        assert_eq!(say(json!({"op": "tell", "id": asked["id"], "value": value})), json!({"ok": true}));
        best.min(value)
    });
    assert!(best < 1.0 / 32.0, "{best}");
    let stat = say(json!({"op": "stat"}));
    assert!(stat["rss_mib"].as_f64().unwrap() > 1.0 && stat["cpu_s"].as_f64().unwrap() > 0.0, "{stat}");
    writeln!(input, r#"{{"op":"quit"}}"#).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn strategies_are_listed_and_checked() {
    let listed = String::from_utf8(tuner(&[]).output().unwrap().stdout).unwrap();
    for name in shoal_tuner::named::names() {
        assert!(listed.lines().any(|line| line.trim_start().starts_with(name)), "{name} is not in\n{listed}");
    }
    let refused = tuner(&["--stdio", "newton"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("there is no strategy \"newton\"; there are: random"),
        "{refused:?}"
    );
}

/// The shell's part of docs/tuning.md, as a reader would type it.
#[test]
fn the_page_works() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tuning.md")).unwrap();
    let scripts: Vec<&str> =
        page.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```\n").next().unwrap()).collect();
    assert!(scripts.len() >= 3);
    let dir = tempfile::tempdir().unwrap();
    let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_shoal")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    for script in scripts {
        let output =
            Command::new("sh").args(["-eu", "-c", script]).current_dir(dir.path()).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{script}\n{output:?}");
    }
}
