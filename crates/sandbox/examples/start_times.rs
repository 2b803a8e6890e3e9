//! What an instance costs here:
//! `cargo run --release -p shoal-sandbox --example start_times [ROUNDS]`.

use std::time::Instant;

use shoal_sandbox::{Network, Sandbox, SandboxError, SandboxSpec, Support, reexec_entry};

fn main() -> Result<(), SandboxError> {
    reexec_entry();
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(50_u32).max(1);
    let began = Instant::now();
    let support = Support::probe();
    println!("{:?}, limits {:?}, probed in {:.1?}", support.isolation, support.cgroup, began.elapsed());
    let mut times = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let moments = one(&format!("times-{}-{round}", std::process::id()), &support)?;
        for (list, pair) in times.iter_mut().zip(moments.windows(2)) {
            list.push(pair[1] - pair[0]);
        }
    }
    for (what, list) in
        ["network made", "program started", "program ended and gone", "network gone"].iter().zip(&mut times)
    {
        list.sort();
        println!("{what:>24}: median {:>6.1?}, least {:>6.1?}", list[list.len() / 2], list[0]);
    }
    Ok(())
}

fn one(id: &str, support: &Support) -> Result<Vec<Instant>, SandboxError> {
    let mut moments = vec![Instant::now()];
    let network = Network::create(id, 1, support)?;
    moments.push(Instant::now());
    let spec = SandboxSpec {
        id: format!("{id}-1"),
        hostname: "algo-1".into(),
        host: 1,
        hosts: vec!["algo-1".into()],
        mounts: Vec::new(),
        command: vec!["true".into()],
        env: Vec::new(),
        cwd: "/".into(),
        memory_bytes: 1 << 30,
        together: None,
        cpu_weight: 100,
        pids: 100,
        addresses: Vec::new(),
        has_proxy: false,
    };
    let mut sandbox = Sandbox::start(&spec, &network, support)?;
    moments.push(Instant::now());
    sandbox.wait()?;
    moments.push(Instant::now());
    drop(network);
    moments.push(Instant::now());
    Ok(moments)
}
