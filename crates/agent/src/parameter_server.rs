//! TensorFlow's parameter server beside a script, as SageMaker's image has it on every instance
//! (sagemaker-tensorflow-training-toolkit, `training.py`): what `shoal parameter-server` is in a
//! sandbox. Where the instance's Python has no TensorFlow the script is alone.
//!
//! The server ends with the script. Where that is a worker's and all went well, it ends with the
//! master's, which may still need it.

use std::env;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use shoal_contract::{FAILURE, SUCCESS};
use signal_hook::consts::{SIGCHLD, SIGTERM};
use signal_hook::iterator::Signals;

use crate::lines::Splitter;
use crate::outcome::code;

/// Where the cluster stands.
const VARIABLE: &str = "TF_CONFIG";

/// The instance's, which is the environment's if it has one.
const PYTHON: &str = "python3";

/// Ends well if there is a TensorFlow, which it does not load.
const LOOK: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)";

/// GPUs are the script's: two processes of TensorFlow are not to share one.
const SERVE: &str = "
import json, os
import tensorflow as tf
told = json.loads(os.environ['TF_CONFIG'])
config = tf.compat.v1.ConfigProto(device_count={'GPU': 0})
tf.distribute.Server(tf.train.ClusterSpec(told['cluster']), job_name='ps', task_index=told['task']['index'], \
                     config=config).join()
";

/// Before each of the server's lines in the log.
const MARK: &[u8] = b"[parameter server] ";

/// How often to look whether the master is still there, and how long it may take to answer.
const POLL: Duration = Duration::from_millis(500);
const ANSWER: Duration = Duration::from_secs(5);

/// How long a script whose server is gone may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

const READ_BYTES: usize = 32 << 10;

/// Starts the server with this number in the cluster and, beside it, the script (`command`); gives
/// the script's exit code when both are over.
pub fn beside(index: usize, command: &[String]) -> i32 {
    run(index, command).unwrap_or_else(|text| {
        eprintln!("shoal parameter-server: {text}");
        FAILURE
    })
}

fn run(index: usize, command: &[String]) -> Result<i32, String> {
    let (program, arguments) = command.split_first().ok_or("no script is named behind --")?;
    let mut script = Command::new(program);
    script.args(arguments);
    if !has_tensorflow() {
        return Err(format!("{program} cannot be started: {}", script.exec()));
    }
    let told = env::var(VARIABLE).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let told = told.ok_or_else(|| format!("{VARIABLE} has no cluster in it"))?;
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let mut signals = Signals::new([SIGTERM, SIGCHLD]).map_err(failed("signals cannot be waited for"))?;
    let mut server = Server::start(index, &told).map_err(failed("the parameter server cannot be started"))?;
    let mut script = script.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
    let mut terminated = false;
    let ended = loop {
        if let Some(status) = script.try_wait().map_err(failed("the script's end is not told"))? {
            break code(status);
        }
        if let Some(status) = server.ended() {
            end(&mut script);
            return Err(gone(status));
        }
        for _ in signals.wait().filter(|signal| *signal == SIGTERM) {
            terminated = true;
            // It fails if it has ended by itself.
            let _ = kill_process(Pid::from_child(&script), Signal::TERM);
        }
    };
    if let Some(master) = master(&told).filter(|_| ended == SUCCESS && !terminated) {
        while is_up(master) && signals.pending().all(|signal| signal != SIGTERM) {
            if let Some(status) = server.ended() {
                return Err(gone(status));
            }
            thread::sleep(POLL);
        }
    }
    Ok(ended)
}

fn gone(status: ExitStatus) -> String {
    format!(
        "the parameter server of this instance has ended ({status}), and what the script had in it is gone; see its \
         lines above"
    )
}

fn has_tensorflow() -> bool {
    let mut python = Command::new(PYTHON);
    python.args(["-c", LOOK]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

/// Ended when this goes.
struct Server {
    process: Child,
    output: Vec<JoinHandle<()>>,
}

impl Server {
    fn start(index: usize, told: &Value) -> io::Result<Self> {
        let mut python = Command::new(PYTHON);
        python
            .args(["-c", SERVE])
            .env(VARIABLE, as_server(index, told.clone()).to_string())
            .env("CUDA_VISIBLE_DEVICES", "-1");
        let mut process = python.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let output =
            [stdout.map(|it| thread::spawn(move || show(it))), stderr.map(|it| thread::spawn(move || show(it)))];
        Ok(Self { process, output: output.into_iter().flatten().collect() })
    }

    /// How, once it has said all.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.try_wait().ok().flatten()?;
        self.output.drain(..).for_each(|it| drop(it.join()));
        Some(status)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails if it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Lines go to stdout, as what a script says last on stderr is why it failed.
fn show(mut stream: impl Read) {
    let (mut buffer, mut splitter) = (vec![0; READ_BYTES], Splitter::default());
    // Nobody reads it any more when the agent is gone, and this process is about to follow it.
    let put = |line: &[u8]| drop(io::stdout().write_all(&[MARK, line, b"\n"].concat()));
    loop {
        match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A pipe that cannot be read is at its end.
            Ok(0) | Err(_) => break,
            Ok(count) => splitter.push(&buffer[..count], |line| put(&line)),
        }
    }
    splitter.finish().iter().for_each(|line| put(line));
}

/// Ends a script by SIGTERM, or by SIGKILL if it does not heed that.
fn end(script: &mut Child) {
    let _ = kill_process(Pid::from_child(script), Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until && matches!(script.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_millis(20));
    }
    let _ = script.kill();
    let _ = script.wait();
}

/// The cluster as its parameter server `index` is told of it.
fn as_server(index: usize, mut told: Value) -> Value {
    told["task"] = json!({ "index": index, "type": "ps" });
    told
}

/// Where the master is, for a script that is not it.
fn master(told: &Value) -> Option<&str> {
    told["cluster"]["master"][0].as_str().filter(|_| told["task"]["type"] != "master")
}

/// Whether somebody listens there.
fn is_up(address: &str) -> bool {
    let Ok(mut addresses) = address.to_socket_addrs() else { return false };
    addresses.any(|address| TcpStream::connect_timeout(&address, ANSWER).is_ok())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_is_told_of_itself_and_workers_of_their_master() {
        let cluster =
            json!({ "master": ["algo-1:2222"], "ps": ["algo-1:2223", "algo-2:2223"], "worker": ["algo-2:2222"] });
        let told =
            |kind: &str| json!({ "cluster": cluster, "environment": "cloud", "task": { "index": 0, "type": kind } });
        let expected = json!({ "cluster": cluster, "environment": "cloud", "task": { "index": 1, "type": "ps" } });
        assert_eq!(as_server(1, told("worker")), expected);
        assert_eq!((master(&told("worker")), master(&told("master"))), (Some("algo-1:2222"), None));
    }

    #[test]
    fn a_master_is_up_while_it_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        assert!(is_up(&address));
        drop(listener);
        assert!(!is_up(&address));
    }
}
