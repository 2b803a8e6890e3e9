//! What every test needs: an instance with files, a program run to its end, a look at the machine.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shoal_sandbox::{Exit, Isolation, Mount, Network, Sandbox, SandboxError, SandboxSpec, Support};

/// `Err` is why the test was skipped.
pub(crate) type Outcome = Result<(), String>;

/// Longer than anything takes that will ever happen; waiting for it means failure.
const NEVER: Duration = Duration::from_secs(240);

pub(crate) struct Stage {
    pub support: Support,
}

/// A directory, a network and the instance to be made with them.
pub(crate) struct Instance {
    pub dir: tempfile::TempDir,
    pub network: Network,
    pub spec: SandboxSpec,
}

/// A program's end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub exit: Exit,
}

impl Stage {
    pub(crate) fn new(support: Support) -> Stage {
        Stage { support }
    }

    pub(crate) fn is_full(&self) -> bool {
        matches!(self.support.isolation, Isolation::Full { .. })
    }

    pub(crate) fn needs_namespaces(&self) -> Outcome {
        if self.is_full() { Ok(()) } else { Err("plain processes do not promise this".to_owned()) }
    }

    pub(crate) fn needs_cgroup(&self) -> Outcome {
        self.support.cgroup.map(drop).ok_or_else(|| "no control group can be made by this user".to_owned())
    }

    /// An instance that runs a shell script, with `/opt/ml` of its own.
    pub(crate) fn shell(&self, script: &str) -> Instance {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::tempdir().unwrap();
        let ml = dir.path().join("ml");
        fs::create_dir(&ml).unwrap();
        let spec = SandboxSpec {
            id: format!("{id}-1"),
            hostname: "algo-1".to_owned(),
            host: 1,
            hosts: vec!["algo-1".to_owned(), "algo-2".to_owned()],
            mounts: vec![Mount::Bind { source: ml, target: "/opt/ml".into() }],
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            cwd: "/opt/ml".into(),
            memory_bytes: 1 << 30,
            together: None,
            cpu_weight: 100,
            pids: 200,
            addresses: Vec::new(),
            has_proxy: false,
        };
        let network = Network::create(&format!("{id}-net"), 2, &self.support).unwrap();
        Instance { dir, network, spec }
    }

    /// Runs a script to its end.
    pub(crate) fn run(&self, script: &str) -> Ended {
        self.finish(&self.shell(script))
    }

    pub(crate) fn start(&self, instance: &Instance) -> Result<Sandbox, SandboxError> {
        Sandbox::start(&instance.spec, &instance.network, &self.support)
    }

    pub(crate) fn finish(&self, instance: &Instance) -> Ended {
        ended(self.start(instance).unwrap_or_else(|error| panic!("{error:?}")))
    }

    /// The interpreter of the machine's own `/usr`.
    pub(crate) fn python(&self) -> Result<&'static str, String> {
        let path = "/usr/bin/python3";
        if Path::new(path).exists() { Ok(path) } else { Err(format!("needs {path}")) }
    }
}

impl Instance {
    /// A new directory beside the instance's.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    pub(crate) fn ml(&self) -> PathBuf {
        self.dir.path().join("ml")
    }
}

/// Reads what there is to read and waits.
pub(crate) fn ended(mut sandbox: Sandbox) -> Ended {
    let (mut output, mut error) = (sandbox.stdout().unwrap(), sandbox.stderr().unwrap());
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        error.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut text = Vec::new();
    output.read_to_end(&mut text).unwrap();
    let exit = sandbox.wait().unwrap();
    assert_eq!(sandbox.wait().unwrap(), exit, "asking twice");
    Ended { stdout: String::from_utf8_lossy(&text).into_owned(), stderr: reader.join().unwrap(), exit }
}

/// Waits for a line of the program's output; what follows it is for [`ended`].
pub(crate) fn first_line(output: &mut impl Read) -> String {
    // One byte at a time, so that nothing of the next line is taken.
    let mut line = String::new();
    BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

pub(crate) fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < NEVER, "{what} never happened");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processes of this machine with this text somewhere in their command line.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok_and(|pid| pid != std::process::id()));
    let lines = numbered.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| line.contains(text)).collect()
}

/// Control groups, in every hierarchy, whose name contains this text.
pub(crate) fn groups_with(text: &str) -> Vec<PathBuf> {
    fn search(directory: &Path, text: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().contains(text) {
                    found.push(entry.path());
                }
                search(&entry.path(), text, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), text, &mut found);
    found
}

pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
