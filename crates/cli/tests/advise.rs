//! `shoal advise` as people run it: the file of its own help, and mistakes in it.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::{
    fs,
    process::{Command, Output},
};

fn shoal(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_shoal")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The example in the help.
fn example() -> String {
    let help = text(&shoal(&["advise", "--help"]).stdout);
    let lines: Vec<&str> = help.lines().map(str::trim).collect();
    let (begin, end) =
        (lines.iter().position(|line| *line == "{").unwrap(), lines.iter().position(|line| *line == "}").unwrap());
    lines[begin..=end].join("\n")
}

#[test]
fn the_help_s_file_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("costs.json");
    let file = path.to_str().unwrap();
    fs::write(&path, example()).unwrap();
    let output = shoal(&["advise", file, "--top", "3"]);
    let listing = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<&str> = listing.lines().collect();
    assert!(lines.len() == 5 && lines[0].starts_with("data") && lines[4].starts_with("3 of "), "{listing}");
    let output = shoal(&["advise", file, "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(all.as_array().unwrap().len() == 10 && all[0]["step"].as_f64() <= all[1]["step"].as_f64());
}

#[test]
fn links_are_measured_as_the_file_has_them() {
    let output = shoal(&["advise", "--links", "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let link: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(link["latency"].as_f64().unwrap() > 0.0 && link["bandwidth"].as_f64().unwrap() > 1e6, "{link}");
    let mut file: serde_json::Value = serde_json::from_str(&example()).unwrap();
    file["machine"]["inside"] = link;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("costs.json");
    fs::write(&path, file.to_string()).unwrap();
    assert!(shoal(&["advise", path.to_str().unwrap()]).status.success());
    for arguments in [&["advise", "--links", "1"][..], &["advise", "--links", "2", "costs.json"], &["advise"]] {
        assert_eq!(shoal(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn mistakes_name_the_file_and_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("costs.json");
    for (change, said) in [
        ((r#""batch": 64"#, r#""batch": 0"#), "batch: must be at least 1; nearest valid: 1"),
        ((r#""batch": 64"#, r#""batches": 64"#), "unknown field `batches`"),
        ((r#""bandwidth": 5e9"#, r#""bandwidth": 0"#), "bandwidth: is 0"),
    ] {
        fs::write(&path, example().replace(change.0, change.1)).unwrap();
        let output = shoal(&["advise", path.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains("costs.json: ") && error.contains(said), "{error}");
    }
    assert!(text(&shoal(&["advise", "nowhere.json"]).stderr).contains("could not read nowhere.json"));
}
