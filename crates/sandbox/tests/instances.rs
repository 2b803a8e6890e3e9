//! quick
use shoal_sandbox::*;
use std::io::Read;
fn main() {
    reexec_entry();
    let t = std::time::Instant::now();
    let support = Support::probe();
    println!("{:?} {support:#?}", t.elapsed());
    if std::env::args().nth(1).as_deref() == Some("bench") { bench(&support); return; }
    let dir = tempfile::tempdir().unwrap();
    let (ml, lower, scratch) = (dir.path().join("ml"), dir.path().join("lower"), dir.path().join("scratch"));
    for d in [&ml, &lower, &scratch] {
        std::fs::create_dir(d).unwrap();
    }
    std::fs::write(lower.join("a.csv"), "1,2\n").unwrap();
    let network = Network::create("quick", 2, &support).unwrap();
    let command = std::env::args().nth(1).unwrap_or("id; ls -la / /dev /etc /opt/ml /opt/ml/input/data/train; cat /proc/self/status | grep -i -e cap -e nonew; cat /etc/hosts; hostname; cat /proc/self/mountinfo; ps aux; ls /sys/class/net; python3 -c 'import socket,ssl;print(socket.gethostbyname(\"algo-1\"))'; echo x >> /opt/ml/input/data/train/a.csv; cat /opt/ml/input/data/train/a.csv; touch /opt/ml/m; ls -ln /opt/ml; ls -la /proc/self/fd; echo hi >/dev/stderr; unshare -U true; ulimit -a".into());
    let t = std::time::Instant::now();
    let mut s = Sandbox::start(
        &SandboxSpec {
            id: "quick-1".into(),
            hostname: "algo-1".into(),
            host: 1,
            hosts: vec!["algo-1".into(), "algo-2".into()],
            mounts: vec![
                Mount::Bind { source: ml, target: "/opt/ml".into() },
                Mount::Overlay { lower: lower.clone(), scratch, target: "/opt/ml/input/data/train".into() },
            ],
            command: vec!["sh".into(), "-c".into(), command],
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/opt/ml".into(),
            memory_bytes: 256 << 20,
            cpu_weight: 100,
            pids: 64,
        },
        &network,
        &support,
    )
    .unwrap();
    println!("start {:?} {:?}", t.elapsed(), s.notes());
    let mut e = s.stderr().unwrap();
    let h = std::thread::spawn(move || {
        let mut o = String::new();
        e.read_to_string(&mut o).unwrap();
        o
    });
    let mut o = String::new();
    s.stdout().unwrap().read_to_string(&mut o).unwrap();
    println!("{o}\nERR {}", h.join().unwrap());
    println!("{:?} {:?}", s.wait(), t.elapsed());
    println!("lower {:?}", std::fs::read_to_string(lower.join("a.csv")));
}
#[allow(dead_code)]
fn bench(support: &Support) {
    let mut net = vec![]; let mut start = vec![]; let mut all = vec![];
    for i in 0..40 {
        let t = std::time::Instant::now();
        let network = Network::create(&format!("bench{i}"), 1, support).unwrap();
        net.push(t.elapsed());
        let t1 = std::time::Instant::now();
        let mut s = Sandbox::start(&SandboxSpec { id: format!("bench{i}"), hostname: "algo-1".into(), host: 1, hosts: vec!["algo-1".into()], mounts: vec![],
        command: vec!["true".into()], env: vec![], cwd: "/".into(), memory_bytes: 256 << 20, cpu_weight: 100, pids: 64 }, &network, support).unwrap();
        start.push(t1.elapsed());
        s.wait().unwrap();
        drop(network);
        all.push(t.elapsed());
    }
    for v in [&mut net, &mut start, &mut all] { v.sort(); println!("min {:?} median {:?}", v[0], v[20]); }
}
