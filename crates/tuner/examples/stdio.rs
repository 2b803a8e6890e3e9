//! The JSON-lines protocol on stdin and stdout: `stdio [STRATEGY]`. What a benchmark harness starts
//! as a contender.

use std::io::{BufRead as _, Write as _};

use shoal_tuner::protocol::{Session, Usage};

fn main() -> std::io::Result<()> {
    let strategy = std::env::args().nth(1).unwrap_or_else(|| "random".to_owned());
    let mut session = Session::new(strategy, usage);
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let Some(mut reply) = session.handle(line.trim_end()) else { break };
        reply.push('\n');
        output.write_all(reply.as_bytes())?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}

/// Of this process, as /proc tells it; zeros elsewhere.
fn usage() -> Usage {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let kib = |text: &str| {
        text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok())
    };
    // Nanoseconds on a processor.
    let cpu = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    Usage {
        rss_mib: kib(&read("status")).unwrap_or(0.0) / 1024.0,
        cpu_s: cpu(&read("schedstat")).unwrap_or(0.0) * 1e-9,
    }
}
