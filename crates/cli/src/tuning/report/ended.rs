//! The part of the page that tells which trials failed, were cancelled, or had no number to show,
//! and why.

use std::fmt::Write as _;

use shoal_wire::StudyDescription;

use crate::tuning::endings::{Group, astray, groups, numbers};
use shoal_profile::escape;

/// Reasons longer than this are folded up.
const LONG: usize = 160;

/// A heading and a table; nothing where every trial came to its proper end.
pub(super) fn section(study: &StudyDescription) -> String {
    let (groups, astray) = (groups(study), astray(study));
    if groups.is_empty() && astray.is_empty() {
        return String::new();
    }
    let title =
        if groups.is_empty() { "Trials whose objective was no number" } else { "Trials that failed or were cancelled" };
    let mut text = format!("<h2 id=\"ended-heading\">{title}</h2>");
    if !astray.is_empty() {
        let _ = write!(
            text,
            "<p>The objective was not a number (nan) at the end of {}: these count as worse than all others. Narrower \
             ranges keep the search away \
             from where training diverges.</p>",
            numbers(&astray)
        );
    }
    if groups.is_empty() {
        return text;
    }
    if let Some(failed) = groups.iter().find(|group| group.state == "Failed") {
        let _ = write!(
            text,
            "<p>What one of them printed: <code>shoal jobs logs {}</code></p>",
            escape(&failed.trials[0].training_job_name)
        );
    }
    text.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"ended-heading\"><table \
         class=\"ended\"><thead><tr>\
         <th scope=\"col\">state</th><th scope=\"col\">trials</th><th scope=\"col\">why</th></tr></thead><tbody>",
    );
    for group in &groups {
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}<br>{}</td><td class=\"why\">{}</td></tr>",
            group.state,
            group.trials.len(),
            numbers(&group.trials),
            why(group)
        );
    }
    text + "</tbody></table></div>"
}

fn why(group: &Group<'_>) -> String {
    let gist = escape(&group.gist);
    if group.reason.lines().count() <= 1 && group.reason.chars().count() <= LONG {
        return gist;
    }
    let whose = group.trials.first().map_or(0, |trial| trial.number);
    format!(
        "<details><summary>{gist}</summary><p>Trial {whose}, in full:</p><pre>{}</pre></details>",
        escape(group.reason)
    )
}
