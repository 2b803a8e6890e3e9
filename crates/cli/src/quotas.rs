//! `shoal quotas`: who may use how much, and does.

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::LIST_QUOTAS;

use crate::{
    client::Client,
    exit::Exit,
    output::{show, show_json, table},
    settings::{ClientFlags, readable},
};

/// Arguments of `shoal quotas`.
#[derive(Debug, Args)]
pub(crate) struct QuotasArgs {
    /// ListQuotas' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Asks and prints.
pub(crate) fn run(args: &QuotasArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let answer = client.sagemaker(LIST_QUOTAS, &json!({}))?;
    if args.json {
        show_json(&answer)?;
    } else {
        show(&text(&answer))?;
    }
    Ok(Exit::Ok)
}

fn text(answer: &Value) -> String {
    let number = |value: &Value| value.as_u64().map(|number| number.to_string());
    let bytes = |value: &Value| value.as_u64().map(readable);
    let amount = |value: &Value, shown: &dyn Fn(&Value) -> Option<String>| match (&value["Used"], &value["Limit"]) {
        (used, limit) if limit.is_null() => shown(used).unwrap_or_else(|| "-".to_owned()),
        (used, limit) => {
            let used = shown(used).unwrap_or_else(|| "?".to_owned());
            format!("{used} of {}", shown(limit).unwrap_or_default())
        }
    };
    let row = |quota: &Value| {
        let plain = |name: &str| quota[name].as_i64().map_or("-".to_owned(), |number| number.to_string());
        vec![
            quota["Name"].as_str().unwrap_or_default().to_owned(),
            amount(&quota["Jobs"], &number),
            amount(&quota["Instances"], &number),
            amount(&quota["Gpus"], &number),
            amount(&quota["StoredBytes"], &bytes),
            amount(&quota["LogBytes"], &bytes),
            plain("RequestsPerSecond"),
            plain("MaxPriority"),
            quota["UsedInstanceSeconds"].as_f64().map_or("-".to_owned(), |seconds| format!("{seconds:.0} s")),
        ]
    };
    let head = ["QUOTA", "JOBS", "INSTANCES", "GPUS", "STORED", "LOGS", "REQUESTS/S", "PRIORITY", "USED"];
    let head = head.map(str::to_owned).to_vec();
    let quotas = answer["Quotas"].as_array().map_or(&[][..], Vec::as_slice);
    table(&Vec::from_iter(std::iter::once(head).chain(quotas.iter().map(row))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stands_before_what_may_be() {
        let answer = json!({"Quotas": [
            {"Name": "user:anna", "Jobs": {"Used": 1, "Limit": 2}, "Instances": {"Used": 4}, "Gpus": {"Used": 0},
             "StoredBytes": {"Used": 1024, "Limit": 2048}, "LogBytes": {"Limit": 1024}, "RequestsPerSecond": 50,
             "MaxPriority": -1, "UsedInstanceSeconds": 12.7},
            {"Name": "tag:team=vision", "Jobs": {"Used": 0}, "Instances": {"Used": 0}, "Gpus": {"Used": 0, "Limit": 1}},
        ]});
        assert_eq!(
            text(&answer),
            "QUOTA            JOBS    INSTANCES  GPUS    STORED              LOGS          REQUESTS/S  PRIORITY  USED\n\
             user:anna        1 of 2  4          0       1.0 KiB of 2.0 KiB  ? of 1.0 KiB  50          -1        13 s\n\
             tag:team=vision  0       0          0 of 1  -                   -             -           -         -\n"
        );
    }
}
