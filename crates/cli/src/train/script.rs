//! `shoal train train.py --epochs 3`: a script with its directory, as the request that SageMaker's
//! SDKs make of one (script mode).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};
use shoal_environments::{Table, imports};

use super::{
    TrainArgs,
    delivery::{Delivery, mark},
    source::Source,
    words::is_script,
};

/// Runs anything on the machine's own `/usr`.
const HOST: &str = "shoal/host";
/// The environment of scripts that only `requirements.txt` tells of: the smallest.
const PLAIN: &str = "sagemaker-scikit-learn";
/// What a script installs beside itself.
const REQUIREMENTS: &str = "requirements.txt";
/// Hyperparameters that begin so are not the script's.
const RESERVED: &str = "sagemaker_";
/// Digits of a number that are told again as they were typed.
const MOST_DIGITS: usize = 15;

/// What starts a script on several instances as one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Distribution {
    /// PyTorch's launcher: a process for each GPU of each instance, else one for each instance.
    Torchrun,
    /// mpirun, one process for each instance.
    Mpi,
    /// `smdistributed.dataparallel`.
    Dataparallel,
    /// TensorFlow with a parameter server on each instance.
    ParameterServer,
    /// TensorFlow's MultiWorkerMirroredStrategy.
    MultiWorkerMirrored,
}

impl Distribution {
    /// The hyperparameter by which SDKs ask for it.
    fn hyperparameter(self) -> &'static str {
        match self {
            Self::Torchrun => "sagemaker_torch_distributed_enabled",
            Self::Mpi => "sagemaker_mpi_enabled",
            Self::Dataparallel => "sagemaker_distributed_dataparallel_enabled",
            Self::ParameterServer => "sagemaker_parameter_server_enabled",
            Self::MultiWorkerMirrored => "sagemaker_multi_worker_mirrored_strategy_enabled",
        }
    }
}

/// A script whose flags are a request's already; its files are still to be uploaded.
#[derive(Debug)]
pub(crate) struct Script {
    source: Source,
    directory: PathBuf,
    /// Relative to the directory.
    program: String,
    /// What its user should know, line by line.
    pub(crate) notes: Vec<String>,
}

impl Script {
    /// Where the first word is a script: makes image and hyperparameters of the flags, of what it
    /// imports, and of its arguments. `table` knows the images.
    ///
    /// # Errors
    /// It is not there, or is too much; flags contradict each other.
    pub(crate) fn take(args: &mut TrainArgs, table: &Table) -> Result<Option<Self>, String> {
        let Some(path) = args.file.take_if(|path| is_script(path)) else {
            let alone = [(args.source.is_some(), "--source"), (args.distribution.is_some(), "--distribution")];
            return match alone.iter().find(|(is_given, _)| *is_given) {
                Some((_, flag)) => Err(format!("{flag} is for a script, as in `{flag} ... train.py`")),
                None => Ok(None),
            };
        };
        let shown = path.display();
        if !path.is_file() {
            return Err(format!("there is no script {shown} here"));
        }
        let (directory, relative) = place(&path, args.source.as_deref())?;
        let source = Source::of(&directory, &relative)?;
        let program = relative.to_str().ok_or_else(|| format!("{shown}: a script's name must be UTF-8"))?.to_owned();
        let mut script = Self { source, directory, program, notes: Vec::new() };
        let image = args.image.take().unwrap_or_else(|| script.image(table));
        if image == HOST && script.source.has(REQUIREMENTS) {
            script.notes.push(format!(
                "{REQUIREMENTS} is not installed by {HOST}, which runs this machine's own \
                                       Python; images with an environment do it (`shoal image list`)"
            ));
        }
        args.image = Some(image);
        script.arguments(args)?;
        let told = |name: &str, value: &str| format!("{name}={value}");
        args.hyperparameters.push(told("sagemaker_program", &script.program));
        args.hyperparameters.extend(args.distribution.map(|it| told(it.hyperparameter(), "true")));
        Ok(Some(script))
    }

    /// The image by what the script and its own modules import.
    fn image(&mut self, table: &Table) -> String {
        let name = &self.program;
        let text = self.source.text(Path::new(name));
        let mut found = if is_python(name) { imports(&text) } else { Vec::new() };
        let mut foreign: Vec<String> = Vec::new();
        let mut at = 0;
        // Grows while it is read: modules of its own import others.
        while let Some(module) = found.get(at).cloned() {
            match self.source.module(&module) {
                Some(text) => found.extend(Vec::from_iter(imports(&text).into_iter().filter(|it| !found.contains(it)))),
                None => foreign.push(module),
            }
            at += 1;
        }
        let (image, why) = match table.image_for(&foreign) {
            Some(choice) => {
                let lacks = match choice.lacks.as_slice() {
                    [] => String::new(),
                    lacks => format!("; it has no {}: name the packages in {REQUIREMENTS}", lacks.join(", ")),
                };
                (choice.image, format!("imports {}{lacks}", choice.has.join(", ")))
            }
            None if self.source.has(REQUIREMENTS) => (PLAIN.to_owned(), format!("has a {REQUIREMENTS} beside it")),
            None => (HOST.to_owned(), "imports nothing that an environment is for: this machine's own /usr".to_owned()),
        };
        self.notes.push(format!("image {image}, as {name} {why} (--image takes another)"));
        image
    }

    /// Arguments become hyperparameters where they are pairs, so that they are listed, searched for
    /// and tuned; any others go to the script word by word, and so do all of a shell script, which
    /// tells its arguments by their places: hyperparameters come in the order of their names.
    fn arguments(&mut self, args: &mut TrainArgs) -> Result<(), String> {
        let words = std::mem::take(&mut args.command);
        self.warn_of_ours(&words);
        let Some(pairs) = Some(()).filter(|()| is_python(&self.program)).and_then(|()| pairs(&words)) else {
            args.arguments = words;
            return Ok(());
        };
        for (name, value) in pairs {
            let typed =
                args.hyperparameters.iter().any(|it| it.split_once('=').is_some_and(|(known, _)| known == name));
            if typed {
                return Err(format!("--hp {name} and the script's argument {name} are the same: leave one out"));
            }
            args.hyperparameters.push(format!("{name}={}", spelt(value)));
        }
        Ok(())
    }

    /// Flags of ours behind the script are its arguments; mostly that is a mistake.
    fn warn_of_ours(&mut self, words: &[String]) {
        const OURS: [&str; 17] = [
            "--logs",
            "--image",
            "--instances",
            "--instance-type",
            "--channel",
            "--metric",
            "--detach",
            "--dry-run",
            "--range",
            "--choice",
            "--trials",
            "--minimize",
            "--target",
            "--compute-target",
            "--min-instances",
            "--distribution",
            "--tag",
        ];
        let text = self.source.text(Path::new(&self.program));
        let mut ours = words.iter().filter_map(|word| OURS.iter().find(|flag| word.split('=').next() == Some(flag)));
        let names = |flag: &&&str| !text.contains(**flag);
        if let Some(flag) = ours.find(names) {
            let program = &self.program;
            self.notes.push(format!(
                "{flag} goes to {program}, as it stands behind it; flags of ours stand before: {flag} ... {program}"
            ));
        }
    }

    /// Uploads the files, and says where they are in the request. The bucket is made if need be.
    ///
    /// # Errors
    /// A file cannot be read, or the server refuses it.
    pub(crate) fn upload(&self, delivery: &mut Delivery<'_>, job: &str, request: &mut Value) -> Result<()> {
        delivery.client.create_bucket(delivery.bucket)?;
        let mut archive = self.source.archive()?;
        let key = key(job, &delivery.mark);
        point(request, delivery.bucket, &key);
        delivery.put(&key, &mut archive).with_context(|| format!("could not upload {}", self.directory.display()))?;
        Ok(())
    }

    /// The same in a request that is not sent.
    pub(crate) fn plan(&self, job: &str, request: &mut Value, bucket: &str) {
        let key = key(job, &mark());
        eprintln!("{} ({}) would be uploaded to s3://{bucket}/{key}", self.directory.display(), self.source.summary());
        point(request, bucket, &key);
    }

    /// Puts some place into a request that is only looked at.
    pub(crate) fn place_somewhere(&self, request: &mut Value) {
        point(request, "bucket", "sourcedir.tar.gz");
    }
}

/// As SDKs have it, but for the mark.
fn key(job: &str, mark: &str) -> String {
    format!("{job}/source/{mark}/sourcedir.tar.gz")
}

/// Where the files are, in a request or in a tuning job's definition.
fn point(request: &mut Value, bucket: &str, key: &str) {
    let hyperparameters =
        if request["StaticHyperParameters"].is_object() { "StaticHyperParameters" } else { "HyperParameters" };
    request[hyperparameters]["sagemaker_submit_directory"] = json!(format!("s3://{bucket}/{key}"));
}

/// The directory that is uploaded, and the script's path in it.
fn place(script: &Path, source: Option<&Path>) -> Result<(PathBuf, PathBuf), String> {
    let real = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    // A script that is a link lies where the link does.
    let parent = script.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = script.file_name().ok_or_else(|| format!("{} is no script", script.display()))?;
    let Some(source) = source else { return Ok((parent.to_owned(), name.into())) };
    let below = real(parent)?.strip_prefix(real(source)?).map(|below| below.join(name));
    below.map(|relative| (source.to_owned(), relative)).map_err(|_| {
        format!(
            "--source {}: {} does not lie in it; name a directory above the script",
            source.display(),
            script.display()
        )
    })
}

/// As the toolkit tells them apart: everything else is a shell's.
fn is_python(program: &str) -> bool {
    Path::new(program).extension().is_some_and(|it| it == "py")
}

/// `--name value`, `--name=value`, `-n value`, each once; `None` where something else is among
/// them, or a hyperparameter would not come out as it went in.
fn pairs(words: &[String]) -> Option<Vec<(&str, &str)>> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let long = word.strip_prefix("--");
        let (name, value) = match (long, long.and_then(|long| long.split_once('='))) {
            (_, Some(pair)) => pair,
            (Some(long), None) => (long, words.next()?),
            (None, None) => (word.strip_prefix('-')?, words.next()?),
        };
        // The toolkit gives one letter with one dash, and more with two.
        let is_kept =
            word.starts_with("--") == (name.chars().count() > 1) && !name.starts_with(['-', '=']) && !name.is_empty();
        if !is_kept || is_flag(value) || name.starts_with(RESERVED) || found.iter().any(|(known, _)| *known == name) {
            return None;
        }
        found.push((name, value));
    }
    Some(found)
}

/// Whether a word in a value's place is a flag to argparse. A number may be negative; of those with
/// an exponent it does not know that they are numbers.
fn is_flag(word: &str) -> bool {
    let Some(number) = word.strip_prefix('-') else { return false };
    let is_whole = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    !is_whole(whole) || !is_whole(fraction)
}

/// A hyperparameter's value that is given to the script as it was typed: values are read as JSON,
/// so that `true` would come as Python's `True`.
fn spelt(value: &str) -> String {
    let is_plain =
        value.len() <= MOST_DIGITS && value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    match serde_json::from_str::<Value>(value) {
        Ok(Value::Number(number)) if is_plain && number.to_string() == value => value.to_owned(),
        Ok(_) => json!(value).to_string(),
        Err(_) => value.to_owned(),
    }
}

/// A command that names a script of this directory, which no instance has: said with the form that
/// uploads it.
///
/// # Errors
/// That is so.
pub(crate) fn is_uploaded(command: &[String]) -> Result<(), String> {
    let interpreters = ["python", "python3", "bash", "sh", "torchrun"];
    let is_interpreter = |word: &String| interpreters.iter().any(|name| word.rsplit('/').next() == Some(name));
    let script = match command {
        [first, rest @ ..] if is_interpreter(first) => rest
            .iter()
            .find(|word| !word.starts_with('-'))
            .filter(|_| !rest.iter().any(|word| word == "-c" || word == "-m")),
        [first, ..] => Some(first),
        [] => None,
    };
    let Some(script) =
        script.filter(|word| Path::new(word).is_relative() && is_script(Path::new(word)) && Path::new(word).is_file())
    else {
        return Ok(());
    };
    Err(format!(
        "{script} is a file here, and no instance has it: `shoal train {script} ARGUMENTS` uploads its directory and \
         runs it, and so does `shoal tune`. Files of a channel are at \
         /opt/ml/input/data/NAME: `shoal train --channel NAME={script} -- python3 /opt/ml/input/data/NAME/...`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn words(typed: &str) -> Vec<String> {
        typed.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    fn taken(files: &[(&str, &str)], args: TrainArgs) -> Result<(TrainArgs, Script), String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
        }
        let below = |path: PathBuf| dir.path().join(path);
        let mut args = TrainArgs { file: args.file.map(below), source: args.source.map(below), ..args };
        let script = Script::take(&mut args, &Table::shipped().unwrap())?;
        Ok((args, script.expect("a script")))
    }

    fn script(name: &str) -> TrainArgs {
        TrainArgs { file: Some(name.into()), ..TrainArgs::default() }
    }

    #[test]
    fn the_image_follows_from_the_imports() {
        for (files, image, why) in [
            (&[("train.py", "import torch, os\n")][..], "pytorch-training", "train.py imports torch"),
            (
                &[("train.py", "from lib import model\n"), ("lib/model.py", "import tensorflow as tf\n")],
                "tensorflow-training",
                "imports tensorflow",
            ),
            (&[("train.py", "import xgboost\n"), ("xgboost.py", "import os\n")], "shoal/host", "imports nothing"),
            (
                &[("train.py", "import os\n"), ("requirements.txt", "left-pad\n")],
                "sagemaker-scikit-learn",
                "requirements.txt beside it",
            ),
            (
                &[("train.py", "import xgboost\nimport torch\n")],
                "sagemaker-xgboost",
                "name the packages in requirements.txt",
            ),
        ] {
            let (args, script) = taken(files, script("train.py")).unwrap();
            assert_eq!(args.image.as_deref(), Some(image));
            assert!(script.notes[0].contains(why), "{:?}", script.notes);
        }
        let given = TrainArgs { image: Some("shoal/host".into()), ..script("train.py") };
        let (args, script) = taken(&[("train.py", "import torch"), ("requirements.txt", "")], given).unwrap();
        assert_eq!(args.image.as_deref(), Some("shoal/host"));
        assert!(script.notes[0].contains("requirements.txt is not installed by shoal/host"), "{:?}", script.notes);
    }

    #[test]
    fn arguments_reach_the_script_as_they_were_typed() {
        for (typed, expected) in [
            (
                "--epochs 3 --rate=0.1 -n 5 --shift -1",
                Some(vec![("epochs", "3"), ("rate", "0.1"), ("n", "5"), ("shift", "-1")]),
            ),
            ("", Some(vec![])),
            ("--shift=-1 --rate -0.5", Some(vec![("shift", "-1"), ("rate", "-0.5")])),
            ("--lr=-1e-5 --epochs 3", None),
            ("--lr -1e-5", None),
            ("--prompt=--hello", None),
            ("--prompt=-", None),
            ("--floor -inf", None),
            ("--verbose --epochs 3", None),
            ("--epochs 3 data.txt", None),
            ("--layer 3 --layer 4", None),
            ("--n 5", None),
            ("-lr 5", None),
            ("--sagemaker_program x", None),
            ("--", None),
        ] {
            assert_eq!(pairs(&words(typed)), expected, "{typed}");
        }
        for (typed, stored) in [
            ("3", "3"),
            ("0.1", "0.1"),
            ("-1", "-1"),
            ("sgd", "sgd"),
            ("true", "\"true\""),
            ("1e-5", "\"1e-5\""),
            ("007", "007"),
            ("[1]", "\"[1]\""),
        ] {
            assert_eq!(spelt(typed), stored);
        }
        let text = [("train.py", "")];
        let pairs = TrainArgs {
            command: words("--epochs 3"),
            distribution: Some(Distribution::Torchrun),
            ..script("train.py")
        };
        let (args, _) = taken(&text, pairs).unwrap();
        assert_eq!(
            args.hyperparameters,
            ["epochs=3", "sagemaker_program=train.py", "sagemaker_torch_distributed_enabled=true"]
        );
        let (args, script_of) =
            taken(&text, TrainArgs { command: words("--logs --verbose data.txt"), ..script("train.py") }).unwrap();
        assert_eq!(
            (args.arguments, args.hyperparameters),
            (words("--logs --verbose data.txt"), words("sagemaker_program=train.py"))
        );
        let shell = TrainArgs { command: words("--second 2 --first 1"), ..script("run.sh") };
        let (of_shell, _) = taken(&[("run.sh", "")], shell).unwrap();
        assert_eq!(
            (of_shell.arguments, of_shell.hyperparameters),
            (words("--second 2 --first 1"), words("sagemaker_program=run.sh"))
        );
        assert!(script_of.notes[1].contains("--logs goes to train.py"), "{:?}", script_of.notes);
    }

    #[test]
    fn mistakes_are_named() {
        let text = [("src/train.py", "")];
        let twice =
            TrainArgs { command: words("--epochs 3"), hyperparameters: words("epochs=4"), ..script("src/train.py") };
        for (args, expected) in [
            (script("absent.py"), "there is no script"),
            (twice, "--hp epochs and the script's argument epochs are the same"),
            (TrainArgs { source: Some("src/..".into()), ..script("absent.py") }, "there is no script"),
        ] {
            let error = taken(&text, args).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let (args, _) = taken(&text, TrainArgs { source: Some("src/..".into()), ..script("src/train.py") }).unwrap();
        assert_eq!(args.hyperparameters, ["sagemaker_program=src/train.py"]);
        let alone = Script::take(
            &mut TrainArgs { distribution: Some(Distribution::Mpi), ..TrainArgs::default() },
            &Table::shipped().unwrap(),
        );
        assert!(alone.unwrap_err().starts_with("--distribution is for a script"));
        assert_eq!(is_uploaded(&words("python3 -c print(1)")), Ok(()));
        assert_eq!(is_uploaded(&words("python3 /opt/ml/input/data/code/train.py")), Ok(()));
        assert_eq!(is_uploaded(&words("sh absent.sh")), Ok(()));
    }
}
