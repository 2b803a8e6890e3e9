//! `shoal image`: image names that stand for a Python environment or a directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use shoal_environments::{ChangeError, Table, UserTable};

use crate::{
    environments::table_file,
    exit::{Exit, UsageError},
    output::{show, table},
    settings::ClientFlags,
};

/// Subcommands of `shoal image`.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// List names of images, your own first, and what each stands for; the first that fits a job's
    /// image wins.
    List(ListArgs),
    /// Give a name to an environment of your own (shoal image add my-team/trainer --python 3.11
    /// --lock requirements.lock) or to a tree of files (shoal image add my-team/trainer --rootfs
    /// /srv/trainer).
    Add(AddArgs),
    /// Take a name of your own away; what was made for it stays in the cache.
    Remove(RemoveArgs),
}

/// Arguments of `shoal image list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal image add`.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = false)]
pub(crate) struct AddArgs {
    /// As jobs will name it in TrainingImage; * stands for any characters, and without a tag every
    /// tag fits.
    name: String,
    /// Version of Python; several, the best first, with commas.
    #[arg(long, value_name = "VERSION", value_delimiter = ',', requires = "lock", group = "what")]
    python: Vec<String>,
    /// Requirements as pip reads them, every package pinned (pip freeze, pip-compile and uv pip
    /// compile write such). It is copied.
    #[arg(long, value_name = "FILE", requires = "python")]
    lock: Option<PathBuf>,
    /// Directory with all files of an image (as `docker export` or debootstrap makes it), the root
    /// of the job's instances; it is not copied, and not changed.
    #[arg(long, value_name = "DIR", conflicts_with = "lock", group = "what")]
    rootfs: Option<PathBuf>,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal image remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// As it was added.
    name: String,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Runs a subcommand. A server that runs knows the change with the next job.
pub(crate) fn run(command: &ImageCommand) -> Result<Exit> {
    match command {
        ImageCommand::List(args) => list(args),
        ImageCommand::Add(args) => add(args),
        ImageCommand::Remove(args) => {
            users(&args.settings)?.remove(&args.name).map_err(usage)?;
            Ok(Exit::Ok)
        }
    }
}

fn list(args: &ListArgs) -> Result<Exit> {
    let images = Table::read(&table_file(&args.settings.settings()?.data_dir))?;
    let mut rows = vec![["IMAGE", "ENVIRONMENT", "WHOSE"].map(str::to_owned).to_vec()];
    rows.extend(
        images
            .roots()
            .map(|(pattern, directory)| vec![pattern.to_owned(), directory.display().to_string(), "yours".to_owned()]),
    );
    rows.extend(images.images().map(|(pattern, environment, is_users)| {
        let whose = if is_users { "yours" } else { "SageMaker's" };
        vec![pattern.to_owned(), environment.to_owned(), whose.to_owned()]
    }));
    show(&table(&rows))?;
    Ok(Exit::Ok)
}

fn add(args: &AddArgs) -> Result<Exit> {
    let Some(file) = &args.lock else {
        let rootfs = args.rootfs.as_deref().unwrap_or(Path::new(""));
        let directory = users(&args.settings)?.add_root(&args.name, rootfs).map_err(usage)?;
        show(&format!("jobs with the image {} have {} as their root\n", args.name, directory.display()))?;
        return Ok(Exit::Ok);
    };
    let lock = fs::read_to_string(file).with_context(|| format!("could not read the lock file {}", file.display()))?;
    users(&args.settings)?.add(&args.name, &args.python, &lock).map_err(usage)?;
    show(&format!(
        "jobs with the image {0} run in it; make it now, so that the first does not wait:\n  shoal env-cache prepare \
         {0}\n",
        args.name
    ))?;
    Ok(Exit::Ok)
}

fn users(settings: &ClientFlags) -> Result<UserTable> {
    let data_dir = settings.settings()?.data_dir;
    fs::create_dir_all(&data_dir)
        .with_context(|| format!("could not make the data directory {}", data_dir.display()))?;
    Ok(UserTable::at(table_file(&data_dir)))
}

/// What was typed wrongly has an exit code of its own.
fn usage(error: ChangeError) -> anyhow::Error {
    match error {
        ChangeError::Name(_) | ChangeError::Python(_) | ChangeError::Root(_) | ChangeError::Unknown { .. } => {
            UsageError(error.to_string()).into()
        }
        ChangeError::Table(_) | ChangeError::Io(_) => error.into(),
    }
}
