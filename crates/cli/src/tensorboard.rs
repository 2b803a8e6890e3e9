//! `shoal tensorboard`: TensorBoard over the event files of a training job, while they come.

use std::{
    collections::HashMap,
    fs, io,
    path::{Component, Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::{S3Uri, TensorBoard};

use crate::{
    client::{Client, Noun},
    exit::Exit,
    output::show,
    settings::ClientFlags,
    watch,
};

/// Between two looks for new files.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);

/// Arguments of `shoal tensorboard`.
#[derive(Debug, Args)]
pub(crate) struct TensorBoardArgs {
    /// Training job's name; its request has TensorBoardOutputConfig.
    name: String,
    /// Where the event files are copied to.
    #[arg(long, value_name = "DIR")]
    logdir: Option<PathBuf>,
    /// Copy what there is and return; start nothing.
    #[arg(long)]
    sync: bool,
    /// Arguments of TensorBoard's own, behind --: --port 6007
    #[arg(last = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Runs it.
pub(crate) fn run(args: &TensorBoardArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let answer = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": args.name}));
    let description = answer.map_err(|error| client.explained(error, Noun::TrainingJob, "show", &args.name))?;
    let place = place(&args.name, &description)?;
    let logdir = args.logdir.clone().unwrap_or_else(|| std::env::temp_dir().join("shoal-tensorboard").join(&args.name));
    let mut copy = Copy { client: &client, place, logdir, sizes: HashMap::new() };
    let files = copy.sync()?;
    show(&format!("{files} event files of {} are in {}\n", args.name, copy.logdir.display()))?;
    if args.sync {
        return Ok(Exit::Ok);
    }
    let mut board = start(&copy.logdir, &args.arguments)?;
    let mut is_over = watch::is_over(&description);
    loop {
        if let Some(status) = board.try_wait()? {
            return Ok(if status.success() { Exit::Ok } else { Exit::Failed });
        }
        thread::sleep(SYNC_INTERVAL);
        if !is_over {
            let now = client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": args.name}));
            // What was written before the end is copied after it.
            is_over = now.is_ok_and(|now| watch::is_over(&now));
            if let Err(error) = copy.sync() {
                eprintln!("shoal tensorboard: {error:#}; trying again");
            }
        }
    }
}

/// Where the job's event files are.
fn place(job: &str, description: &Value) -> Result<S3Uri> {
    let Some(path) = description["TensorBoardOutputConfig"]["S3OutputPath"].as_str() else {
        bail!(
            "the training job {job} writes no event files: its request has no TensorBoardOutputConfig; create it with \
             TensorBoardOutputConfig(S3OutputPath=...), and let the script write below /opt/ml/output/tensorboard"
        );
    };
    let uri = path.parse().map_err(|error| anyhow!("{path}: {error}"))?;
    Ok(TensorBoard { uri, local_path: String::new() }.place(job))
}

fn start(logdir: &Path, arguments: &[String]) -> Result<Child> {
    let by = |program: &str, first: &[&str]| {
        Command::new(program).args(first).arg("--logdir").arg(logdir).args(arguments).spawn()
    };
    match by("tensorboard", &[]) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "TensorBoard is not installed here: pip install tensorboard, or look at {} with one elsewhere (shoal \
             tensorboard --sync only copies)",
            logdir.display()
        ),
        board => board.context("TensorBoard cannot be started"),
    }
}

/// A directory that follows a place in S3.
struct Copy<'a> {
    client: &'a Client,
    place: S3Uri,
    logdir: PathBuf,
    /// Of the files that are copied.
    sizes: HashMap<PathBuf, u64>,
}

impl Copy<'_> {
    /// Copies files that are new or longer. Answers how many there are.
    fn sync(&mut self) -> Result<usize> {
        let folder = self.place.folder();
        for (key, bytes) in self.client.list_objects(&self.place.bucket, &folder)? {
            let Some(path) = below(key.strip_prefix(&folder).unwrap_or(&key)) else { continue };
            if self.sizes.get(&path) == Some(&bytes) {
                continue;
            }
            let content = self.client.get_object(&self.place.bucket, &key)?;
            let target = self.logdir.join(&path);
            write(&target, &content).with_context(|| format!("cannot write {}", target.display()))?;
            self.sizes.insert(path, bytes);
        }
        Ok(self.sizes.len())
    }
}

/// In place: TensorBoard reads on where it was in a file.
fn write(target: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(directory) = target.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(target, content)
}

/// A key's path, if it stays below the directory.
fn below(key: &str) -> Option<PathBuf> {
    let path = PathBuf::from(key);
    let stays = path.components().all(|it| matches!(it, Component::Normal(_)));
    (stays && !key.is_empty() && !key.ends_with('/')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_the_directory() {
        assert_eq!(below("train/events.1"), Some(PathBuf::from("train/events.1")));
        for outside in ["", "/etc/passwd", "../x", "a/../../x", "a/"] {
            assert_eq!(below(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_job_without_event_files_is_refused_with_what_to_do() {
        let description = json!({"TensorBoardOutputConfig": {"S3OutputPath": "s3://my-bucket/board"}});
        assert_eq!(place("a", &description).unwrap().to_string(), "s3://my-bucket/board/a/tensorboard-output/");
        let error = place("a", &json!({})).unwrap_err().to_string();
        assert!(error.contains("TensorBoardOutputConfig(S3OutputPath="), "{error}");
    }
}
