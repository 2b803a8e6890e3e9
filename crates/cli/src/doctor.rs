//! `shoal doctor`: does this machine have what Shoal needs? Every line that is not well says what
//! to do.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use shoal_algos::{Algorithms, Library};
use shoal_encryption::{KeyRing, KeySource};
use shoal_environments::Environment;
use shoal_plane::Node;
use shoal_sandbox::Support;
use shoal_server::{ObjectsElsewhere, PassthroughBucket, PassthroughOptions, TlsOptions};

use crate::{
    client::{Client, ClientError},
    environments,
    exit::Exit,
    images::OurImages,
    output::{show, show_json, table},
    serve,
    settings::{ServerFlags, Settings, readable, size_of},
};

/// Less free space than this is worth a word.
const LITTLE_SPACE: u64 = 1 << 30;

/// Arguments of `shoal doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A list of objects: check, state (ok, note, missing), found, todo.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ServerFlags,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Well.
    Ok,
    /// Works, with less.
    Note,
    /// Something will not work.
    Missing,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "missing",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Check {
    name: String,
    state: State,
    found: String,
    /// What to do about it; empty when all is well.
    todo: String,
}

impl Check {
    fn new(name: &str, state: State, found: impl Into<String>, todo: &str) -> Self {
        Self { name: name.to_owned(), state, found: found.into(), todo: todo.to_owned() }
    }
}

/// Checks everything and prints it; 1 if something is missing.
pub(crate) fn run(args: &DoctorArgs, algorithms: Algorithms) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let mut checks = isolation();
    checks.extend(algorithms.libraries().into_iter().map(library));
    let images = OurImages::of(&settings, algorithms);
    checks.push(scripts(&images, &settings));
    checks.push(package(settings.python_package.as_deref()));
    checks.push(engine(&images));
    checks.push(instance_types(&settings));
    checks.extend(nodes(&settings));
    checks.extend(data_dir(&settings.data_dir));
    checks.extend(settings.objects.as_ref().map(objects));
    checks.extend(passthrough(&settings.passthrough));
    checks.extend(kms(&settings));
    checks.extend(settings.tls.as_ref().map(certificate));
    checks.push(match args.settings.name_a_server() {
        true => server(&settings),
        false => named_server(Client::of_environment(&settings)).unwrap_or_else(|| server(&settings)),
    });
    if args.json {
        let object = |check: &Check| json!({"check": check.name, "state": check.state.text(), "found": check.found, "todo": check.todo});
        show_json(&Value::Array(checks.iter().map(object).collect()))?;
    } else {
        show(&table(&checks.iter().flat_map(rows).collect::<Vec<_>>()))?;
    }
    Ok(if checks.iter().any(|check| check.state == State::Missing) { Exit::Failed } else { Exit::Ok })
}

fn rows(check: &Check) -> Vec<Vec<String>> {
    let mut rows = vec![vec![check.state.text().to_owned(), check.name.clone(), check.found.clone()]];
    if !check.todo.is_empty() {
        rows.push(vec![String::new(), String::new(), format!("-> {}", check.todo)]);
    }
    rows
}

/// What the sandbox found out by making one.
fn isolation() -> Vec<Check> {
    let todo = |name: &str| match name {
        "isolation" => "allow user namespaces, or run the server as root; until then instances are plain processes",
        "limits" => {
            "run the server as root or in a delegated control group; until then an instance can take all memory"
        }
        _ => "",
    };
    let line = |(name, well, found): (String, bool, String)| {
        let state = if well { State::Ok } else { State::Note };
        let todo = if well { "" } else { todo(&name) };
        Check::new(&name, state, found, todo)
    };
    Support::probe().report().into_iter().map(line).collect()
}

fn library(library: &'static Library) -> Check {
    let name = library.file_stem();
    match library.find() {
        Ok(found) => Check::new(&name, State::Ok, found.file.display().to_string(), ""),
        Err(error) => {
            let pip = Command::new("python3")
                .args(["-m", "pip", "--version"])
                .output()
                .is_ok_and(|output| output.status.success());
            let todo = if pip {
                "shoal setup"
            } else {
                "install python3 with pip (only to fetch the library), then: shoal setup"
            };
            Check::new(&name, State::Missing, error.to_string(), todo)
        }
    }
}

/// Is there a Python for every environment of the table?
fn scripts(images: &OurImages, settings: &Settings) -> Check {
    let name = "scripts' Python";
    let environments = match images.environments() {
        Ok(environments) => environments,
        Err(error) => return Check::new(name, State::Missing, error.to_string(), "correct the file, or remove it"),
    };
    let cache = environments::cache(settings);
    let lacking = |environment: &Environment| cache.interpreter(environment).is_err();
    let lacking = Vec::from_iter(environments.iter().filter(|environment| lacking(environment)));
    let Some(first) = lacking.first() else {
        return Check::new(
            name,
            State::Ok,
            format!("there is one for each of {} environments", environments.len()),
            "",
        );
    };
    let wanted = first.pythons.first().map_or("3", String::as_str);
    let names = Vec::from_iter(lacking.iter().map(|environment| environment.name.as_str())).join(", ");
    let todo = format!(
        "install Python {wanted} with its module venv (apt-get install python{wanted} python{wanted}-venv; uv python \
         install {wanted})"
    );
    Check::new(name, State::Note, format!("none on PATH for {names}"), &todo)
}

/// Shoal's Python package: the server lays its wheel over the environments of PyTorch jobs; one's
/// own Python needs it installed.
fn package(wheel: Option<&Path>) -> Check {
    let name = "Python package";
    // Not from here, where a directory could have its name.
    let import = Command::new("python3").args(["-c", "import shoal; print(shoal.__file__)"]).current_dir("/").output();
    let imported = import
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let python =
        imported.as_ref().map_or("python3 cannot import shoal".to_owned(), |file| format!("python3 imports {file}"));
    let Some(wheel) = wheel.map(Path::display) else {
        let todo = "for Horovod, smdistributed, torch.distributed's backend \"shoal\" and shoal.parameter_server: \
                    build the wheel \
                    (cargo xtask package in a checkout), name it as python_package in shoal.toml, and pip install it \
                    where python3 needs it";
        return Check::new(name, State::Note, format!("no wheel for PyTorch jobs; {python}"), todo);
    };
    let todo = if imported.is_some() {
        String::new()
    } else {
        format!("only for programs outside of jobs: python3 -m pip install {wheel}")
    };
    Check::new(name, State::Ok, format!("PyTorch jobs get {wheel}; {python}"), &todo)
}

/// Where images come from that are in no table.
fn engine(images: &OurImages) -> Check {
    let name = "container engine";
    match images
        .check()
        .map_err(|error| error.to_string())
        .and_then(|()| images.engine().map_err(|error| error.to_string()))
    {
        Ok(Some(engine)) => Check::new(name, State::Ok, format!("{} answers", engine.name()), ""),
        Ok(None) => Check::new(name, State::Ok, "none; only images of your own need one", ""),
        Err(error) => Check::new(name, State::Note, error, "images of your own are refused until then"),
    }
}

fn instance_types(settings: &Settings) -> Check {
    match serve::catalog(&settings.data_dir) {
        Ok(_) => Check::new("instance types", State::Ok, "sizes of AWS's, and those of instance-types.txt", ""),
        Err(error) => Check::new("instance types", State::Missing, format!("{error:#}"), "correct the line"),
    }
}

/// The nodes that shoal.toml lists: whether they are there only their command knows.
fn nodes(settings: &Settings) -> Vec<Check> {
    let of_node = |node: &Node| {
        let size = size_of(std::slice::from_ref(node));
        Check::new(
            &format!("node {}", node.name),
            State::Note,
            format!("{size}, as shoal.toml has it; not checked"),
            "",
        )
    };
    settings.nodes.iter().filter(|node| node.name != Node::LOCAL).map(of_node).collect()
}

fn data_dir(dir: &Path) -> Vec<Check> {
    let shown = dir.display();
    // Before the first start it is not there; what counts then is where it will be made.
    let existing =
        dir.ancestors().find(|ancestor| ancestor.is_dir()).map_or_else(|| PathBuf::from("/"), Path::to_owned);
    let probe = existing.join(format!(".shoal-doctor-{}", std::process::id()));
    let writable = match fs::write(&probe, "").and_then(|()| fs::remove_file(&probe)) {
        Ok(()) => Check::new("data directory", State::Ok, format!("{shown} can be written"), ""),
        Err(error) => Check::new(
            "data directory",
            State::Missing,
            format!("{shown}: {error}"),
            "choose another with --data-dir or SHOAL_DATA_DIR",
        ),
    };
    let space = match free_bytes(&existing) {
        Some(free) if free < LITTLE_SPACE => Check::new(
            "space",
            State::Note,
            format!("{} free below {shown}", readable(free)),
            "make room, or choose another --data-dir",
        ),
        Some(free) => Check::new("space", State::Ok, format!("{} free below {shown}", readable(free)), ""),
        None => Check::new("space", State::Note, "df does not tell", ""),
    };
    vec![writable, space]
}

/// Does the store of objects' contents answer, and may this user's keys write there?
fn objects(objects: &ObjectsElsewhere) -> Check {
    let name = "objects elsewhere";
    match objects.check() {
        Ok(()) => Check::new(name, State::Ok, format!("{} can be read and written", objects.address), ""),
        Err(error) => {
            let todo = "correct the setting objects, the bucket, or the keys (docs/objects.md)";
            Check::new(name, State::Missing, error.to_string(), todo)
        }
    }
}

/// Do the buckets of other stores answer that are shown as they are?
fn passthrough(options: &PassthroughOptions) -> Vec<Check> {
    let of_bucket = |(name, bucket): (&String, &PassthroughBucket)| {
        let title = format!("bucket {name}");
        match bucket.check(name) {
            Ok(location) => Check::new(&title, State::Ok, format!("{location} can be listed"), ""),
            Err(why) => {
                let todo = format!("correct [bucket.{name}] in shoal.toml, the bucket, or the keys (docs/objects.md)");
                Check::new(&title, State::Missing, why, &todo)
            }
        }
    };
    options.buckets.iter().map(of_bucket).collect()
}

/// Do the keys that contents are encrypted under work? A command wraps and unwraps one for that.
fn kms(settings: &Settings) -> Vec<Check> {
    let of_key = |(name, source): (&String, &KeySource)| {
        let sources = BTreeMap::from([(name.clone(), source.clone())]);
        let checked = KeyRing::open(&sources, &settings.region, &settings.account).and_then(|ring| ring.check(name));
        let found = match source {
            KeySource::File(path) => path.display().to_string(),
            KeySource::Command(command) => command.join(" "),
        };
        match checked {
            Ok(()) => Check::new(&format!("key {name}"), State::Ok, found, ""),
            Err(error) => {
                let todo = format!("correct [kms.{name:?}] in shoal.toml, or what it names (docs/encryption.md)");
                Check::new(&format!("key {name}"), State::Missing, error.to_string(), &todo)
            }
        }
    };
    settings.kms.iter().map(of_key).collect()
}

/// POSIX `df`: the standard library cannot ask.
fn free_bytes(dir: &Path) -> Option<u64> {
    let output = Command::new("df").arg("-Pk").arg(dir).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Will clients take the certificate?
fn certificate(tls: &TlsOptions) -> Check {
    let name = "certificate";
    match (tls, tls.complaint()) {
        (_, Err(error)) => {
            Check::new(name, State::Missing, format!("{:#}", anyhow::Error::new(error)), "correct tls_cert and tls_key")
        }
        (_, Ok(Some(complaint))) => {
            Check::new(name, State::Note, complaint, "renew it; a running server takes it up by itself")
        }
        (TlsOptions::SelfMade { .. }, Ok(None)) => Check::new(name, State::Ok, "self-made", ""),
        (TlsOptions::Files { certificate, .. }, Ok(None)) => {
            Check::new(name, State::Ok, certificate.display().to_string(), "")
        }
    }
}

/// The server that this shell's clients speak with, as `eval "$(shoal env)"` has set it; `None`
/// where nothing is set.
fn named_server(client: Result<Option<Client>>) -> Option<Check> {
    let name = "server";
    let client = match client {
        Ok(client) => client?,
        Err(error) => {
            return Some(Check::new(
                name,
                State::Missing,
                format!("{error:#}"),
                "correct AWS_ENDPOINT_URL, or unset it",
            ));
        }
    };
    let url = client.url();
    Some(match client.sagemaker("ListTrainingJobs", &json!({"MaxResults": 1})) {
        Ok(_) => Check::new(name, State::Ok, format!("answers at {url} (AWS_ENDPOINT_URL)"), ""),
        Err(error) => {
            let todo = "point this shell at a server that runs: eval \"$(shoal env)\"";
            Check::new(name, State::Note, format!("AWS_ENDPOINT_URL: {error}"), todo)
        }
    })
}

/// Is there a server on this data directory, and if not, could there be one?
fn server(settings: &Settings) -> Check {
    let url = settings.url();
    let answer =
        Client::local(settings).ok().map(|client| client.sagemaker("ListTrainingJobs", &json!({"MaxResults": 1})));
    match answer {
        Some(Ok(_)) => return Check::new("server", State::Ok, format!("answers at {url}"), ""),
        Some(Err(
            error @ (ClientError::Refused(_) | ClientError::NotUnderstood { .. } | ClientError::Distrusted { .. }),
        )) => {
            let todo =
                "another program or another data directory's server is there; choose another address with --listen";
            return Check::new("server", State::Missing, format!("{url}: {error}"), todo);
        }
        Some(Err(_)) | None => {}
    }
    match TcpListener::bind(settings.listen) {
        Ok(_) => Check::new(
            "server",
            State::Ok,
            format!("none on {} yet; {} is free for `shoal serve`", settings.data_dir.display(), settings.listen),
            "",
        ),
        Err(error) => {
            let todo = "choose another address with --listen or SHOAL_LISTEN";
            Check::new(
                "server",
                State::Missing,
                format!("none, and {} cannot be listened on: {error}", settings.listen),
                todo,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let states = |dir: &Path| data_dir(dir).iter().map(|check| check.state).collect::<Vec<_>>();
        assert_eq!(states(&dir.path().join("not/yet"))[0], State::Ok);
        // /proc is a directory in which nobody, not even root, makes files.
        assert_eq!(states(Path::new("/proc/shoal"))[0], State::Missing);
    }

    #[test]
    fn every_complaint_has_its_own_row_of_advice() {
        let check = Check::new("server", State::Missing, "none", "start one");
        assert_eq!(table(&rows(&check)), "missing  server  none\n                 -> start one\n");
        assert_eq!(rows(&Check::new("server", State::Ok, "answers", "")).len(), 1);
    }
}
