//! Local channels go to the default bucket before the job is created.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    delivery::{Delivery, mark},
    request::Upload,
};
use crate::output::Progress;

/// Uploads the files of local channels to the bucket and puts their place in the request. The
/// bucket is made if need be, also when only the artifacts go there.
///
/// # Errors
/// A file cannot be read, or the server refuses it.
pub(crate) fn run(delivery: &mut Delivery<'_>, uploads: &[Upload], job: &str, request: &mut Value) -> Result<()> {
    let bucket = delivery.bucket;
    let output = request["OutputDataConfig"]["S3OutputPath"].as_str().unwrap_or_default();
    if !uploads.is_empty() || output.trim_end_matches('/').starts_with(&format!("s3://{bucket}")) {
        delivery.client.create_bucket(bucket)?;
    }
    let mut progress = Progress::on_stderr();
    for Upload { channel, source } in uploads {
        let files = files(source).with_context(|| format!("channel {channel}: could not read {}", source.display()))?;
        ensure!(!files.is_empty(), "channel {channel}: there is no file in {}", source.display());
        let prefix = prefix(job, channel, &delivery.mark);
        for (path, name) in files {
            progress.draw(&format!("uploading {}", path.display()));
            let mut file = File::open(&path).with_context(|| format!("could not read {}", path.display()))?;
            delivery.put(&format!("{prefix}{name}"), &mut file)?;
        }
        set_uri(request, channel, &format!("s3://{bucket}/{prefix}"));
    }
    Ok(())
}

/// Puts the places of local channels in a request that is not sent: where [`run`] would upload them
/// to. Tells what that is, and creates nothing.
///
/// # Errors
/// A file cannot be read.
pub(crate) fn plan(uploads: &[Upload], job: &str, request: &mut Value, bucket: &str) -> Result<()> {
    for Upload { channel, source } in uploads {
        let files = files(source).with_context(|| format!("channel {channel}: could not read {}", source.display()))?;
        ensure!(!files.is_empty(), "channel {channel}: there is no file in {}", source.display());
        let uri = format!("s3://{bucket}/{}", prefix(job, channel, &mark()));
        let plural = if files.len() == 1 { "" } else { "s" };
        eprintln!("channel {channel}: {} ({} file{plural}) would be uploaded to {uri}", source.display(), files.len());
        set_uri(request, channel, &uri);
    }
    Ok(())
}

/// Puts some places of local channels into a request that is only looked at.
pub(crate) fn place_somewhere(uploads: &[Upload], request: &mut Value) {
    for Upload { channel, .. } in uploads {
        set_uri(request, channel, &format!("s3://bucket/{channel}/"));
    }
}

fn prefix(job: &str, channel: &str, mark: &str) -> String {
    format!("{job}/input/{channel}/{mark}/")
}

fn set_uri(request: &mut Value, channel: &str, uri: &str) {
    let channels = request["InputDataConfig"].as_array_mut().into_iter().flatten();
    for entry in channels.filter(|entry| entry["ChannelName"] == channel) {
        entry["DataSource"]["S3DataSource"]["S3Uri"] = json!(uri);
    }
}

/// A file, or all files below a directory, each with its name in the channel; in order of name.
fn files(source: &Path) -> std::io::Result<Vec<(PathBuf, String)>> {
    if !source.is_dir() {
        let name = source.file_name().unwrap_or(source.as_os_str()).to_string_lossy().into_owned();
        fs::metadata(source)?;
        return Ok(vec![(source.to_owned(), name)]);
    }
    let mut found = Vec::new();
    let mut open = vec![(source.to_owned(), String::new())];
    while let Some((dir, prefix)) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if leads_up(&entry.path()) {
                continue;
            }
            if entry.path().is_dir() {
                open.push((entry.path(), format!("{name}/")));
            } else {
                found.push((entry.path(), name));
            }
        }
    }
    found.sort_by(|a, b| a.1.cmp(&b.1));
    Ok(found)
}

/// Whether this is a link to a directory that it lies in: a walk through it would not end.
fn leads_up(path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    path.is_symlink()
        && path.parent().and_then(real).zip(real(path)).is_some_and(|(parent, target)| parent.starts_with(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_walked() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        for name in ["c.csv", "b/a.csv", "a.csv"] {
            fs::write(dir.path().join(name), "1").unwrap();
        }
        for (name, target) in [("latest", "."), ("b/up", ".."), ("linked.csv", "a.csv")] {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        }
        let names = |source: &Path| files(source).unwrap().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(dir.path()), ["a.csv", "b/a.csv", "c.csv", "linked.csv"]);
        assert_eq!(names(&dir.path().join("b/a.csv")), ["a.csv"]);
        assert!(files(&dir.path().join("none")).is_err());
    }
}
