//! `shoal targets`: where jobs may run.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::LIST_TARGETS;

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table},
    settings::ClientFlags,
};

/// Arguments of `shoal targets`.
#[derive(Debug, Args)]
pub(crate) struct TargetsArgs {
    /// ListTargets' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks and prints. The exit code is 1 if a target cannot run jobs.
pub(crate) fn run(args: &TargetsArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let answer = client.sagemaker(LIST_TARGETS, &json!({}))?;
    if args.json {
        show_json(&answer)?;
    } else {
        show(&text(&answer))?;
    }
    let has_problem = targets(&answer).iter().any(|target| target.get("Problem").is_some());
    Ok(if has_problem { Exit::Failed } else { Exit::Ok })
}

fn targets(answer: &Value) -> &[Value] {
    answer["Targets"].as_array().map_or(&[], Vec::as_slice)
}

fn text(answer: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let words = |value: &Value| Vec::from_iter(value.as_array().into_iter().flatten().map(word));
    let row = |target: &Value| {
        let default = if target["IsDefault"] == true { " (default)" } else { "" };
        let types = words(&target["InstanceTypes"]);
        vec![
            format!("{}{default}", word(&target["Name"])),
            word(&target["Kind"]),
            word(&target["Status"]),
            format!("{} of {}", target["SubmittedInstances"], target["MaxInstances"]),
            if types.is_empty() { "any".to_owned() } else { types.join(" ") },
        ]
    };
    let head = ["TARGET", "KIND", "STATUS", "INSTANCES", "TYPES"].map(str::to_owned).to_vec();
    let mut text = table(&Vec::from_iter(std::iter::once(head).chain(targets(answer).iter().map(row))));
    for target in targets(answer) {
        let problem = target.get("Problem").map(word);
        for line in words(&target["Details"]).into_iter().chain(problem) {
            text.push_str(&format!("{}: {line}\n", word(&target["Name"])));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_rows_and_their_schedulers_sentences() {
        let target = |name: &str, problem: Option<&str>| {
            let mut target = json!({
                "Name": name, "Kind": "slurm", "Status": "Available", "IsDefault": name == "a", "MaxInstances": 8,
                "SubmittedInstances": 2, "InstanceTypes": [], "Details": ["jobs of Shoal: 1 run, 0 wait"],
            });
            if let Some(problem) = problem {
                target["Problem"] = json!(problem);
                target["Status"] = json!("Unavailable");
                target["Details"] = json!([]);
            }
            target
        };
        let answer = json!({"Targets": [target("a", None), target("b", Some("it does not answer"))]});
        assert_eq!(
            text(&answer),
            "TARGET       KIND   STATUS       INSTANCES  TYPES\n\
             a (default)  slurm  Available    2 of 8     any\n\
             b            slurm  Unavailable  2 of 8     any\n\
             a: jobs of Shoal: 1 run, 0 wait\n\
             b: it does not answer\n"
        );
    }
}
