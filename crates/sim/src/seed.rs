//! One seed: undisturbed, and then with faults.

use crate::{Bug, SimRun, faults::Severity, history::run, outcome::compare};

/// Least events and jobs of a seed: fewer would say little.
const MIN_EVENTS: usize = 200;
const MIN_JOBS: usize = 5;

/// Even seeds are mild.
fn severity(seed: u64) -> Severity {
    if seed.is_multiple_of(2) { Severity::Mild } else { Severity::Lethal }
}

/// Runs a seed with faults, and compares its outcome with that of the same seed without.
///
/// # Errors
/// What is wrong, after what happened before, and how to see it again: for people.
pub fn check(seed: u64) -> Result<SimRun, String> {
    find(seed, None).map_err(|what| {
        let is_calm = what.starts_with(UNDISTURBED);
        let (_, mut result) = run(seed, if is_calm { Severity::None } else { severity(seed) }, None, true);
        result.push(format!("seed {seed}: {what}\nagain: cargo xtask sim --seeds 1 --from {seed}"));
        result.join("\n")
    })
}

const UNDISTURBED: &str = "without faults, ";

fn find(seed: u64, bug: Option<Bug>) -> Result<SimRun, String> {
    compared(seed, &undisturbed(seed)?, bug)
}

/// Which of these errors the seed finds, each planted alone, with what is wrong then.
///
/// # Errors
/// Without any error something is wrong already.
pub fn found(seed: u64, bugs: &[Bug]) -> Result<Vec<(Bug, String)>, String> {
    let undisturbed = undisturbed(seed)?;
    Ok(bugs.iter().filter_map(|bug| Some((*bug, compared(seed, &undisturbed, Some(*bug)).err()?))).collect())
}

fn undisturbed(seed: u64) -> Result<SimRun, String> {
    let undisturbed = run(seed, Severity::None, None, false).0.map_err(|what| format!("{UNDISTURBED}{what}"))?;
    if undisturbed.events < MIN_EVENTS || undisturbed.outcomes.len() < MIN_JOBS {
        return Err(format!("{UNDISTURBED}only {} events of {} jobs", undisturbed.events, undisturbed.outcomes.len()));
    }
    Ok(undisturbed)
}

fn compared(seed: u64, undisturbed: &SimRun, bug: Option<Bug>) -> Result<SimRun, String> {
    let faulty = run(seed, severity(seed), bug, false).0?;
    let mut wrong = compare(&faulty, undisturbed);
    // Where the order of what a study sees is forced and nobody dies, nothing that goes wrong may
    // show in it.
    if severity(seed) == Severity::Mild && faulty.sequence != undisturbed.sequence {
        wrong.push(format!(
            "the study went on differently: {:?} instead of {:?}",
            faulty.sequence, undisturbed.sequence
        ));
    }
    if wrong.is_empty() { Ok(faulty) } else { Err(wrong.join("\n")) }
}
