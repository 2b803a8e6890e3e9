//! What instances use, as people read it: `shoal jobs show --utilisation`, and in `shoal top`.

use anyhow::Result;
use serde_json::{Value, json};
use shoal_link::metric;
use shoal_wire::DESCRIBE_UTILIZATION;

use crate::{
    client::{Client, ClientError, Noun},
    exit::Exit,
    output::{show as print, show_json, table},
    settings::readable,
};

/// Prints what a job's instances use.
pub(crate) fn show(client: &Client, name: &str, is_json: bool) -> Result<Exit> {
    let answer = client.sagemaker(DESCRIBE_UTILIZATION, &json!({"TrainingJobName": name}));
    let answer = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "show", name))?;
    if is_json {
        show_json(&answer)?;
    } else {
        print(&text(name, &answer))?;
    }
    Ok(Exit::Ok)
}

/// The table, or why there is none.
fn text(name: &str, answer: &Value) -> String {
    let hosts = answer["Hosts"].as_array().map(Vec::as_slice).unwrap_or_default();
    if hosts.is_empty() {
        return format!(
            "{name} has no samples: it has not run for an interval (setting metrics_interval), or ran before this \
             version\n"
        );
    }
    let mut rows = vec![["HOST", "OF", "METRIC", "LAST", "AVERAGE", "MAXIMUM"].map(str::to_owned).to_vec()];
    for host in hosts {
        let mut metrics: Vec<&Value> = host["Metrics"].as_array().into_iter().flatten().collect();
        metrics.sort_by_key(|it| (it["GPU"].as_u64(), it["Rank"].as_u64(), order(it)));
        let shown = metrics.into_iter().filter(|it| it["Name"] != metric::CORES);
        rows.extend(shown.map(|it| row(host["Host"].as_str().unwrap_or_default(), it)));
    }
    table(&rows)
}

fn row(host: &str, entry: &Value) -> Vec<String> {
    let of = match (entry["GPU"].as_u64(), entry["Rank"].as_u64()) {
        (Some(gpu), _) => format!("GPU {gpu}"),
        (_, Some(rank)) => format!("rank {rank}"),
        _ => String::new(),
    };
    let name = entry["Name"].as_str().unwrap_or_default();
    let value = |of: &str| amount(name, entry[of].as_f64().unwrap_or_default());
    vec![host.to_owned(), of, name.to_owned(), value("Latest"), value("Average"), value("Maximum")]
}

/// As AWS's documents list them, then ours.
fn order(entry: &Value) -> usize {
    const ORDER: [&str; 9] = [
        metric::CPU,
        metric::MEMORY,
        metric::MEMORY_BYTES,
        metric::DISK,
        metric::GPU,
        metric::GPU_MEMORY,
        metric::DISK_READ,
        metric::DISK_WRITE,
        metric::NETWORK_RECEIVE,
    ];
    ORDER.iter().position(|name| entry["Name"] == *name).unwrap_or(ORDER.len())
}

/// `184 %`, `1.5 GiB`, `3.0 MiB/s`.
fn amount(name: &str, value: f64) -> String {
    let bytes = || if value < 1.0 { "0".to_owned() } else { readable(value as u64) };
    if name.ends_with("BytesPerSecond") {
        format!("{}/s", bytes())
    } else if name.ends_with("Bytes") {
        bytes()
    } else if value < 9.95 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

/// What a job's instances use now, in a few words; none if nothing was sampled lately.
pub(crate) fn now(client: &Client, name: &str) -> Result<Option<String>, ClientError> {
    /// Seconds: several reports of an agent.
    const LATELY_S: u32 = 30;
    match client.sagemaker(DESCRIBE_UTILIZATION, &json!({"TrainingJobName": name, "LastSeconds": LATELY_S})) {
        // A server that does not have it shows the rest all the same.
        Err(ClientError::Refused(_)) => Ok(None),
        answer => Ok(words(&answer?)),
    }
}

/// `cpu 184 % of 2 cores, mem 37 %, gpu 81 %`, over all instances.
fn words(answer: &Value) -> Option<String> {
    let hosts = answer["Hosts"].as_array()?;
    let values = |name: &str, is_gpu: bool| {
        let metrics = hosts.iter().flat_map(|host| host["Metrics"].as_array().into_iter().flatten());
        let of = metrics.filter(|it| it["Name"] == *name && it["Rank"].is_null() && it["GPU"].is_null() != is_gpu);
        of.filter_map(|it| it["Latest"].as_f64()).collect::<Vec<_>>()
    };
    let sum = |name, is_gpu| values(name, is_gpu).iter().sum::<f64>();
    let mean = |name, is_gpu| {
        let all = values(name, is_gpu);
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    mean(metric::CPU, false)?;
    let cores = sum(metric::CORES, false);
    let mut words = vec![format!("cpu {:.0} % of {cores} cores", sum(metric::CPU, false))];
    words.extend(mean(metric::MEMORY, false).map(|percent| format!("mem {percent:.0} %")));
    words.extend(mean(metric::GPU, true).map(|percent| format!("gpu {percent:.0} %")));
    words.extend(mean(metric::GPU_MEMORY, true).map(|percent| format!("gpu mem {percent:.0} %")));
    Some(words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Value {
        let entry = |name: &str, latest: f64| json!({"Name": name, "Latest": latest, "Average": 5.25, "Maximum": 2e9, "Samples": 9});
        let mut gpu = entry(metric::GPU, 80.0);
        gpu["GPU"] = json!(1);
        let mut rank = entry(metric::CPU, 99.0);
        rank["Rank"] = json!(0);
        let host = |name: &str, cpu: f64| {
            let metrics = [
                rank.clone(),
                gpu.clone(),
                entry(metric::MEMORY_BYTES, 1_610_612_736.0),
                entry(metric::CORES, 2.0),
                entry(metric::CPU, cpu),
                entry(metric::MEMORY, 40.0),
                entry(metric::DISK_WRITE, 0.25),
            ];
            json!({"Host": name, "Time": 1, "Metrics": metrics})
        };
        json!({"Hosts": [host("algo-1", 150.0), host("algo-2", 50.0)]})
    }

    #[test]
    fn a_table_has_a_line_for_each_metric_of_each_host() {
        let shown = text("job", &answer());
        let lines: Vec<_> = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines[..7],
            [
                "HOST OF METRIC LAST AVERAGE MAXIMUM",
                "algo-1 CPUUtilization 150 % 5.2 % 2000000000 %",
                "algo-1 MemoryUtilization 40 % 5.2 % 2000000000 %",
                "algo-1 MemoryBytes 1.5 GiB 5.0 bytes 1.9 GiB",
                "algo-1 DiskWriteBytesPerSecond 0/s 5.0 bytes/s 1.9 GiB/s",
                "algo-1 rank 0 CPUUtilization 99 % 5.2 % 2000000000 %",
                "algo-1 GPU 1 GPUUtilization 80 % 5.2 % 2000000000 %",
            ]
        );
        assert_eq!(lines.len(), 13);
        assert!(text("job", &json!({"Hosts": []})).contains("job has no samples"));
    }

    #[test]
    fn all_instances_are_a_few_words() {
        assert_eq!(words(&answer()).as_deref(), Some("cpu 200 % of 4 cores, mem 40 %, gpu 80 %"));
        assert_eq!(words(&json!({"Hosts": []})), None);
    }
}
