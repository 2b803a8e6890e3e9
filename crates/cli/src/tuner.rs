//! `shoal tuner`: the tuner library for a program in any language, as JSON lines on stdin and
//! stdout.

use std::{
    fs,
    io::{self, BufRead as _, Write as _},
};

use anyhow::{Result, bail};
use clap::Args;
use shoal_tuner::{
    named::{self, Resources, Strategy},
    protocol::{Session, Usage},
};

use crate::{exit::Exit, exit::UsageError, output::show};

/// Arguments of `shoal tuner`.
#[derive(Debug, Args)]
#[command(after_help = STRATEGIES_HINT, after_long_help = PROTOCOL)]
pub(crate) struct TunerArgs {
    /// Read requests from stdin and answer each on stdout, until `quit` or the end of input.
    #[arg(long)]
    stdio: bool,
    /// What `init` does not say itself: a searcher, a scheduler, or both joined by `+`.
    #[arg(value_name = "STRATEGY", default_value = "bayesian")]
    strategy: String,
}

/// What `-h` tells beyond the arguments.
const STRATEGIES_HINT: &str = "Without --stdio it lists the strategies. `shoal tuner --help` shows a conversation.";

/// What `--help` tells beyond the arguments.
const PROTOCOL: &str = "\
                        One JSON object a line; one reply a line, in order. A conversation:
  > {\"op\":\"init\",\"seed\":7,\"space\":[
       {\"name\":\"lr\",\"type\":\"continuous\",\"min\":1e-5,\"max\":1,\"scaling\":\"Logarithmic\"},
       {\"name\":\"depth\",\"type\":\"integer\",\"min\":1,\"max\":9},
       {\"name\":\"opt\",\"type\":\"categorical\",\"values\":[\"sgd\",\"adam\"]}]}        (on one line)
  < {\"ok\":true}
  > {\"op\":\"ask\"}
  < {\"id\":\"t0\",\"config\":{\"lr\":0.0031,\"depth\":4,\"opt\":\"adam\"}}
  > {\"op\":\"tell\",\"id\":\"t0\",\"value\":0.25}                             (null: it failed)
  < {\"ok\":true}
Values are minimised; \"objectives\":[\"maximize\"] in init says otherwise. Several asks may be out at once.

With \"mode\":\"mf\",\"max_resource\":81 in init, trials report on their way and a scheduler decides:
  > {\"op\":\"ask\"}
  < {\"id\":\"t1\",\"config\":{...},\"from\":0,\"to\":9}       run from unit 1 to 9 (null: to the end); or \
                        {\"wait\":true}, {\"end\":true}
  > {\"op\":\"report\",\"id\":\"t1\",\"resource\":3,\"value\":0.31}
  < {\"decision\":\"continue\"}                         or \"stop\", or \"pause\"
  > {\"op\":\"done\",\"id\":\"t1\",\"resource\":9}
  < {\"ok\":true}
Also: {\"op\":\"inject\",\"config\":{...},\"value\":0.4} tells a finished trial of elsewhere, {\"op\":\"stat\"} asks \
                        for memory and
CPU seconds, {\"op\":\"quit\"} ends. init takes \"searcher\" and \"scheduler\": a name, or a specification such as
{\"kind\":\"random\"}. A parameter with \"condition\":{\"parent\":\"opt\",\"in\":[\"sgd\"]} is there only for those \
                        values.
What cannot be done is answered by {\"error\":\"...\"} and changes nothing.";

/// Speaks the protocol, or lists what there is.
pub(crate) fn run(args: &TunerArgs) -> Result<Exit> {
    if !args.stdio {
        show(&listing())?;
        return Ok(Exit::Ok);
    }
    // A name that does not exist is told now, not to the first request. Resources come with `init`.
    let resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };
    if let Err(error) = Strategy::named(&args.strategy, resources) {
        bail!(UsageError(error.to_string()));
    }
    let mut session = Session::new(args.strategy.as_str(), usage);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let Some(mut reply) = session.handle(line.trim_end()) else { break };
        reply.push('\n');
        output.write_all(reply.as_bytes())?;
        output.flush()?;
        line.clear();
    }
    Ok(Exit::Ok)
}

fn listing() -> String {
    let mut text = String::new();
    let mut section = |title: &str, rows: &mut dyn Iterator<Item = (&str, &str)>| {
        text.push_str(&format!("{title}\n"));
        rows.for_each(|(name, what)| text.push_str(&format!("  {name:<18} {what}\n")));
    };
    section("Searchers (what to try next)", &mut named::SEARCHERS.iter().copied());
    section("Schedulers (who goes on)", &mut named::SCHEDULERS.iter().copied());
    section("Both", &mut named::PAIRS.iter().map(|&(name, _, _, what)| (name, what)));
    text.push_str(
        "Join a searcher and a scheduler by +, as in bayesian+asha. `shoal tuner --stdio STRATEGY` starts one.\n",
    );
    text
}

/// Of this process, as /proc tells it; zeros where there is none. It has one thread.
fn usage() -> Usage {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let status = read("status");
    let resident =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
    let on_cpu_ns = read("schedstat").split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    Usage { rss_mib: resident.unwrap_or(0.0) / 1024.0, cpu_s: on_cpu_ns.unwrap_or(0.0) * 1e-9 }
}
