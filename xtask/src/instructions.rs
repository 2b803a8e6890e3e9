//! `instructions`: callgrind counts the instructions of the process groups' hot loops; a count that
//! has grown fails. No clock is asked, so a busy machine changes nothing. The loops are in
//! `crates/comm/examples/instructions.rs`.

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, plain_cargo, shown, succeeds},
};

/// What the counts are compared with, from the repository's root.
const BOUNDS: &str = "crates/comm/instructions.json";
/// Growth that is let through, in percent: another build of the C library copies a little
/// differently.
const TOLERANCE: u64 = 5;
/// What callgrind counts.
const COUNTED: &str = "instructions::counted";
/// How this stands among the checks.
const NAME: &str = "instructions of comm's hot loops (callgrind)";

/// Instructions of one run of each loop, and what they depend on beside our sources.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    /// The vector instructions of the kernels, as the program says.
    kernels: String,
    /// The compiler.
    rustc: String,
    loops: BTreeMap<String, u64>,
}

/// The task: `cargo xtask instructions [--renew]`.
///
/// # Errors
/// Valgrind or the compiler cannot be run, or the file of bounds cannot be read or written.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let mut outcome = Outcome::default();
    match env::args().nth(2).as_deref() {
        Some("--renew") => {
            ensure!(
                has_valgrind(),
                "there is no valgrind to count with: install it (Debian: apt-get install valgrind)"
            );
            let counts = count(workspace)?;
            fs::write(workspace.root.join(BOUNDS), counts.file()?)
                .with_context(|| format!("could not write {BOUNDS}"))?;
            println!("{BOUNDS} has the counts of {} loops; say in the commit why they changed", counts.loops.len());
            return Ok(true);
        }
        None => check(workspace, &mut outcome)?,
        Some(other) => anyhow::bail!("instructions takes --renew or nothing, not {other:?}"),
    }
    // A skip is no failure.
    Ok(outcome.report() || outcome.failed.is_empty())
}

/// The check, one of those of `ci`.
///
/// # Errors
/// The file of bounds cannot be read.
pub(crate) fn check(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    if !has_valgrind() {
        outcome.skipped.push(Skip { name: NAME.to_owned(), reason: "needs valgrind".to_owned() });
        return Ok(());
    }
    let path = workspace.root.join(BOUNDS);
    let bounds =
        Counts::read(&fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?)?;
    let counts = match count(workspace) {
        Ok(counts) => counts,
        Err(error) => {
            eprintln!("{error:#}");
            outcome.fail(NAME);
            return Ok(());
        }
    };
    if counts.kernels != bounds.kernels {
        let reason = format!(
            "needs a processor whose kernels are {} under valgrind, as the bounds were counted; here they are {}",
            bounds.kernels, counts.kernels
        );
        outcome.skipped.push(Skip { name: NAME.to_owned(), reason });
        return Ok(());
    }
    let (table, complaints) = compare(&counts, &bounds);
    print!("{table}");
    complaints.iter().for_each(|complaint| eprintln!("{complaint}"));
    if !complaints.is_empty() && counts.rustc != bounds.rustc {
        eprintln!(
            "the bounds were counted with {}, this is {}: if that is all, renew them",
            bounds.rustc, counts.rustc
        );
    }
    outcome.count(NAME, complaints.is_empty());
    Ok(())
}

fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds the program as users get it, and counts.
fn count(workspace: &Workspace) -> Result<Counts> {
    ensure!(
        succeeds(plain_cargo(workspace).args(["build", "--release", "-p", "shoal-comm", "--example", "instructions"]))?,
        "it does not build"
    );
    let dumps = workspace.target.join("callgrind");
    if dumps.exists() {
        fs::remove_dir_all(&dumps)?;
    }
    fs::create_dir_all(&dumps)?;
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "-q",
        "--tool=callgrind",
        &format!("--toggle-collect={COUNTED}"),
        &format!("--dump-after={COUNTED}"),
    ]);
    valgrind
        .arg(format!("--callgrind-out-file={}", dumps.join("dump").display()))
        .arg(workspace.target.join("release/examples/instructions"));
    valgrind.env_remove("SHOAL_COMM_TIMELINE").stdin(Stdio::null());
    eprintln!("$ {}", shown(&valgrind));
    let output = valgrind.output().context("could not run valgrind")?;
    // Standard error has valgrind's remarks on system calls that it does not know, too.
    ensure!(output.status.success(), "the program failed under valgrind: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout)?;
    let mut totals = Vec::new();
    for number in 1..=said.lines().count().saturating_sub(1) {
        totals.push(total(&dumps.join(format!("dump.{number}")))?);
    }
    let rustc = Command::new("rustc").arg("--version").output().context("could not run rustc")?;
    let rustc = String::from_utf8_lossy(&rustc.stdout).trim().to_owned();
    let (kernels, loops) = read(&said, &totals)?;
    Ok(Counts { kernels, rustc, loops })
}

/// The instructions of one dump.
fn total(dump: &Path) -> Result<u64> {
    let text = fs::read_to_string(dump)
        .with_context(|| format!("valgrind wrote no {}; was {COUNTED} inlined?", dump.display()))?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("summary: "))
        .with_context(|| format!("{} has no summary", dump.display()))?;
    Ok(total.trim().parse()?)
}

/// What the program said, with the total of each of its counts: the kernels' instructions, and the
/// least count of each loop for one run.
fn read(said: &str, totals: &[u64]) -> Result<(String, BTreeMap<String, u64>)> {
    let mut lines = said.lines();
    let kernels = lines.next().context("the program said nothing")?.to_owned();
    let mut loops = BTreeMap::new();
    for (line, total) in lines.zip(totals) {
        let (name, times) = line.split_once('\t').with_context(|| format!("no name and number: {line:?}"))?;
        let count = total / times.parse::<u64>().with_context(|| format!("no number: {line:?}"))?.max(1);
        ensure!(count > 0, "{name}: nothing was counted");
        let least = loops.entry(name.to_owned()).or_insert(count);
        *least = count.min(*least);
    }
    Ok((kernels, loops))
}

/// A table for people, and what is wrong.
fn compare(counts: &Counts, bounds: &Counts) -> (String, Vec<String>) {
    let mut table =
        format!("instructions of one run, kernels {}, at most {TOLERANCE} % above the bound\n", counts.kernels);
    let mut complaints = Vec::new();
    for (name, count) in &counts.loops {
        let Some(bound) = bounds.loops.get(name) else {
            complaints.push(format!("{BOUNDS}: {name:?} has no bound: `cargo xtask instructions --renew`"));
            continue;
        };
        let percent = (*count as f64 / *bound as f64 - 1.0) * 100.0;
        table += &format!("{name:<40} {count:>9}  bound {bound:>9}  {percent:+.1} %\n");
        if count * 100 > bound * (100 + TOLERANCE) {
            complaints.push(format!(
                "{name}: {count} instructions, {percent:.1} % more than {bound}: find what made the loop longer, or, if it is worth it, `cargo xtask instructions --renew`"
            ));
        }
    }
    let gone = bounds.loops.keys().filter(|name| !counts.loops.contains_key(*name));
    complaints.extend(
        gone.map(|name| format!("{BOUNDS}: {name:?} is not counted any more: `cargo xtask instructions --renew`")),
    );
    (table, complaints)
}

impl Counts {
    fn file(&self) -> Result<String> {
        let loops: Map<_, _> = self.loops.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        let text = serde_json::to_string_pretty(
            &json!({ "kernels": self.kernels, "rustc": self.rustc, "instructions": loops }),
        )?;
        Ok(text + "\n")
    }

    fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text).with_context(|| format!("{BOUNDS} is no JSON"))?;
        let word = |name: &str| {
            value[name].as_str().map(str::to_owned).with_context(|| format!("{BOUNDS}: {name} is no text"))
        };
        let loops = value["instructions"].as_object().with_context(|| format!("{BOUNDS}: no instructions"))?;
        let loops = loops.iter().map(|(name, count)| {
            let count =
                count.as_u64().filter(|count| *count > 0).with_context(|| format!("{BOUNDS}: {name:?} is no count"))?;
            Ok((name.clone(), count))
        });
        Ok(Self { kernels: word("kernels")?, rustc: word("rustc")?, loops: loops.collect::<Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(loops: &[(&str, u64)]) -> Counts {
        let loops = loops.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Counts { kernels: "Avx2".to_owned(), rustc: "rustc 1".to_owned(), loops }
    }

    #[test]
    fn the_least_count_of_one_run_is_a_loops_own() {
        let said = "Avx2\na\t10\na\t10\nb\t1\n";
        let (kernels, loops) = read(said, &[1240, 1200, 7]).expect("whole");
        assert_eq!((kernels.as_str(), loops), ("Avx2", counts(&[("a", 120), ("b", 7)]).loops));
        assert!(read(said, &[1200, 1200, 0]).is_err_and(|error| error.to_string().contains("b: nothing")));
    }

    #[test]
    fn growth_is_told_and_so_is_what_cannot_be_compared() {
        let bounds = counts(&[("a", 1000), ("b", 1000), ("c", 10)]);
        let (table, complaints) = compare(&counts(&[("a", 1050), ("b", 1051), ("d", 5)]), &bounds);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].starts_with("b: 1051 instructions, 5.1 % more than 1000"), "{complaints:?}");
        assert!(
            complaints[1].contains("\"d\" has no bound") && complaints[2].contains("\"c\" is not counted"),
            "{complaints:?}"
        );
        assert!(table.contains("+5.0 %"), "{table}");
        assert_eq!(compare(&bounds, &bounds).1, Vec::<String>::new());
    }

    #[test]
    fn bounds_are_read_as_they_are_written() {
        let bounds = counts(&[("a", 1), ("b, 4 B", 2)]);
        assert_eq!(Counts::read(&bounds.file().expect("JSON")).expect("whole"), bounds);
        assert!(Counts::read("{}").is_err());
    }
}
