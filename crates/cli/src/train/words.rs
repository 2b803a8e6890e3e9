//! Whose the words of a command line are: behind `shoal train train.py` they are the script's.

use std::{ffi::OsString, fs::File, io::Read, path::Path};

use clap::Command;

/// Puts `--` behind the script of `shoal train [FLAGS] train.py --epochs 3`, and of `shoal tune`,
/// so that what follows is no flag of ours. `shoal` defines the commands.
pub(crate) fn separate(mut words: Vec<OsString>, shoal: &Command) -> Vec<OsString> {
    let named = words.get(1).and_then(|word| word.to_str()).filter(|word| matches!(*word, "train" | "tune"));
    let Some(command) = named.and_then(|name| shoal.find_subcommand(name)) else { return words };
    let mut at = 2;
    while let Some(word) = words.get(at) {
        let flag = word.to_str().filter(|word| word.starts_with('-') && word.len() > 1);
        match flag {
            Some("--") => return words,
            // Its value is the next word, unless it stands in the same one.
            Some(flag) => at += if takes_a_value(flag, command) { 2 } else { 1 },
            None => {
                let is_followed = words.get(at + 1).is_some_and(|next| next != "--");
                if is_followed && is_script(Path::new(word)) {
                    words.insert(at + 1, "--".into());
                }
                return words;
            }
        }
    }
    words
}

fn takes_a_value(flag: &str, command: &Command) -> bool {
    let Some(name) = flag.strip_prefix("--") else { return false };
    let known = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    known.is_some_and(|argument| argument.get_action().takes_values())
}

/// Whether the first word of `shoal train` is a script and no request: by its name's ending, or as
/// it begins with `#!`.
pub(crate) fn is_script(path: &Path) -> bool {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("py" | "sh") => true,
        Some("json" | "yaml" | "yml") => false,
        _ => {
            let mut begin = [0; 2];
            File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *b"#!"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn words_behind_a_script_are_its_own() {
        let shoal = crate::Cli::command();
        for (typed, expected) in [
            ("shoal train train.py --epochs 3", "shoal train train.py -- --epochs 3"),
            (
                "shoal train --logs --channel train=a.csv --name=x train.py -v b.py",
                "shoal train --logs --channel train=a.csv --name=x train.py -- -v b.py",
            ),
            ("shoal train --name train.py job.yaml --hp a=1", "shoal train --name train.py job.yaml --hp a=1"),
            ("shoal train train.py -- --epochs 3", "shoal train train.py -- --epochs 3"),
            ("shoal train train.py", "shoal train train.py"),
            ("shoal train -- python3 train.py --epochs 3", "shoal train -- python3 train.py --epochs 3"),
            ("shoal train - --name x", "shoal train - --name x"),
            ("shoal tune --range lr=0..1 train.py --epochs 3", "shoal tune --range lr=0..1 train.py -- --epochs 3"),
            ("shoal tune tuning.yaml --trials 3", "shoal tune tuning.yaml --trials 3"),
            ("shoal jobs train.py --epochs 3", "shoal jobs train.py --epochs 3"),
            ("shoal", "shoal"),
        ] {
            let words = Vec::from_iter(typed.split(' ').map(OsString::from));
            let separated = Vec::from_iter(separate(words, &shoal).into_iter().map(|word| word.into_string().unwrap()));
            assert_eq!(separated.join(" "), expected);
        }
    }

    #[test]
    fn a_script_is_known_by_its_name_or_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(is_script(&file) && is_script(Path::new("absent.py")));
        std::fs::write(&file, "TrainingJobName: x\n").unwrap();
        assert!(!is_script(&file) && !is_script(Path::new("job.yaml")) && !is_script(Path::new("absent")));
    }
}
