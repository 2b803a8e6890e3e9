//! How time grows with the number of ranks: measured for few, beside the cost model; predicted by
//! it for many.

use std::env;
use std::process::{Command, Stdio};

use shoal_comm::bench::link;
use shoal_comm::cost::Link;
use shoal_comm::join;
use shoal_comm::rendezvous::Config;

/// What ranks are measured.
const RANKS: std::ops::RangeInclusive<usize> = 2..=8;

/// One group: its links, and for each size the least and the median time in microseconds.
struct Group {
    ranks: usize,
    link: Link,
    rows: Vec<(usize, f64, f64)>,
}

/// Measures groups of both kinds, and prints them, the model and its prediction.
pub(crate) fn run(mbit: &str, delay: &str, sizes: &str, seconds: &str, hosts: usize) {
    let network = format!("{mbit} Mbit/s, {delay} us");
    let over = |ranks: usize, is_network: bool| {
        let (count, each) = if is_network { (ranks, 1) } else { (1, ranks) };
        group(ranks, &["net", &count.to_string(), &each.to_string(), mbit, delay], sizes, seconds)
    };
    println!(
        "| network | ranks | link measured | bytes | algorithm | model, ms | measured, ms: least / median | median over model |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut first = None;
    for (name, is_network) in [(network.as_str(), true), ("loopback", false)] {
        for ranks in RANKS {
            let group = over(ranks, is_network);
            group.rows.iter().for_each(|row| println!("{}", measured(name, &group, *row)));
            if is_network {
                first.get_or_insert(group.link);
            }
        }
    }
    let link = first.expect("two ranks at least");
    for bytes in sizes.split(',').map(|size| size.parse().unwrap()) {
        println!("{}", predicted(&network, hosts, &link, bytes));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\nLoad average at the end {}.", load.split(' ').next().unwrap_or_default());
}

/// Runs a group and reads what its first rank prints.
fn group(ranks: usize, net: &[&str], sizes: &str, seconds: &str) -> Group {
    let program = env::current_exe().unwrap();
    let mut command = Command::new(&program);
    command.args(net).arg("run").arg(&program).args(["growth-rank", sizes, seconds]).env("SHOAL_COMM_TRANSPORT", "tcp");
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{ranks} ranks: the group failed");
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |field: &str| field.parse::<f64>().unwrap_or_else(|_| panic!("no number: {field:?} in {text}"));
    let (mut link, mut rows) = (None, Vec::new());
    for line in text.lines() {
        match line.split(',').collect::<Vec<_>>()[..] {
            ["link", latency, bandwidth] => {
                link = Some(Link { latency: number(latency), bandwidth: number(bandwidth) });
            }
            [_, _, _, bytes, _, least, median, _] => rows.push((bytes.parse().unwrap(), number(least), number(median))),
            _ => panic!("not a row: {line:?}"),
        }
    }
    Group { ranks, link: link.expect("the first rank prints its link"), rows }
}

/// One rank of a group.
pub(crate) fn rank(sizes: &str, seconds: f64) {
    let group = join(Config::from_env().unwrap()).unwrap();
    let Link { latency, bandwidth } = link(&*group).unwrap();
    if group.rank() == 0 {
        println!("link,{latency},{bandwidth}");
    }
    super::operations(&*group, "growth", "allreduce", sizes, seconds);
}

fn measured(name: &str, group: &Group, (bytes, least, median): (usize, f64, f64)) -> String {
    let (model, middle) = (milliseconds(&group.link, group.ranks, bytes), median / 1e3);
    format!(
        "{} {:.3} / {middle:.3} | {:.2} |",
        model_of(name, group.ranks, &group.link, bytes),
        least / 1e3,
        middle / model
    )
}

fn predicted(name: &str, hosts: usize, link: &Link, bytes: usize) -> String {
    format!("{} predicted, not measured | |", model_of(name, hosts, link, bytes))
}

/// The columns that the model fills.
fn model_of(name: &str, ranks: usize, link: &Link, bytes: usize) -> String {
    let (us, rate) = (link.latency * 1e6, link.bandwidth / 1e6);
    let (algorithm, model) = (link.chosen(ranks, bytes), milliseconds(link, ranks, bytes));
    format!("| {name} | {ranks} | {us:.0} us, {rate:.0} MB/s | {bytes} | {algorithm:?} | {model:.3} |")
}

fn milliseconds(link: &Link, ranks: usize, bytes: usize) -> f64 {
    link.all_reduce(link.chosen(ranks, bytes), ranks, bytes).as_secs_f64() * 1e3
}
