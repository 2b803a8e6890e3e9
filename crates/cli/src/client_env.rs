//! What the AWS clients need in their environment to speak with this server, and the files that go
//! with it.
//!
//! `AWS_ENDPOINT_URL` alone is not enough: the SageMaker SDKs name STS's public host, send
//! telemetry and look seldom. A botocore plugin mends the first and the last, a file of SDK
//! defaults switches off the second. The AWS CLI's own Python loads no plugin of ours, but reads
//! additions to AWS's models: they shorten its waiters' pauses.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use crate::{client::owner_keys, settings::Settings};
use anyhow::{Context, Result};

/// The plugin's module.
const PLUGIN: &str = "shoal_botocore";
/// Its files.
const MODULES: [(&str, &str); 2] = [
    ("shoal_botocore.py", include_str!("../python/shoal_botocore.py")),
    ("shoal_polling.py", include_str!("../python/shoal_polling.py")),
];

/// Additions to AWS's models.
const MODELS: &str = "models";
/// Where botocore looks for additions to the waiters of SageMaker's model, below `AWS_DATA_PATH`.
const WAITERS: (&str, &str) =
    ("sagemaker/2017-07-24/waiters-2.sdk-extras.json", include_str!("../assets/sagemaker-waiters.json"));

/// Name and value; `None` means that the variable must not be set.
pub(crate) type Variable = (String, Option<String>);

/// Writes the client files of this data directory and says what to set.
///
/// # Errors
/// The directory has no keys yet, or cannot be written.
pub(crate) fn prepare(settings: &Settings) -> Result<Vec<Variable>> {
    let keys = owner_keys(settings)?;
    let dir = settings.client_dir();
    let defaults = dir.join("sagemaker.yaml");
    write_files(&dir, &defaults, &settings.default_bucket, &settings.default_prefix)
        .with_context(|| format!("could not write to {}", dir.display()))?;
    let set = |name: &str, value: String| (name.to_owned(), Some(value));
    let inherited: Vec<_> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let url = settings.url();
    let mut variables = vec![
        set("AWS_ENDPOINT_URL", url.to_string()),
        set("AWS_ACCESS_KEY_ID", keys.access_key_id),
        set("AWS_SECRET_ACCESS_KEY", keys.secret_access_key),
        set("AWS_REGION", settings.region.clone()),
        set("AWS_DEFAULT_REGION", settings.region.clone()),
        set("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        set("SAGEMAKER_USER_CONFIG_OVERRIDE", defaults.display().to_string()),
        set("BOTOCORE_EXPERIMENTAL__PLUGINS", format!("shoal={PLUGIN}")),
        set("PYTHONPATH", search_path(&dir, value(&inherited, "PYTHONPATH"))),
    ];
    if value(&inherited, "SHOAL_SDK_POLLING") != "keep" {
        variables.push(set("AWS_DATA_PATH", search_path(&dir.join(MODELS), value(&inherited, "AWS_DATA_PATH"))));
    }
    if let Some(file) = &url.trusted {
        variables.push(set("AWS_CA_BUNDLE", file.display().to_string()));
    }
    if inherited
        .iter()
        .any(|(name, _)| ["http_proxy", "https_proxy"].iter().any(|proxy| name.eq_ignore_ascii_case(proxy)))
    {
        variables.push(set("NO_PROXY", no_proxy(url.host(), value(&inherited, "NO_PROXY"))));
    }
    variables.extend(inherited.iter().filter(|(name, _)| misleads(name)).map(|(name, _)| (name.clone(), None)));
    Ok(variables)
}

/// Variables that would lead a client to other keys or another endpoint.
fn misleads(name: &str) -> bool {
    ["AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"].contains(&name)
        || name.starts_with("AWS_ENDPOINT_URL_")
}

fn value<'a>(variables: &'a [(String, String)], name: &str) -> &'a str {
    variables.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// Our directory before what was there, once.
fn search_path(dir: &Path, before: &str) -> String {
    let ours = dir.display().to_string();
    let others = before.split(':').filter(|entry| !entry.is_empty() && *entry != ours);
    std::iter::once(ours.as_str()).chain(others).collect::<Vec<_>>().join(":")
}

fn no_proxy(host: &str, before: &str) -> String {
    let others = before.split(',').map(str::trim).filter(|entry| !entry.is_empty() && *entry != host);
    std::iter::once(host).chain(others).collect::<Vec<_>>().join(",")
}

fn write_files(dir: &Path, defaults: &Path, bucket: &str, prefix: &str) -> io::Result<()> {
    let waiters = dir.join(MODELS).join(WAITERS.0);
    fs::create_dir_all(waiters.parent().unwrap_or(dir))?;
    write_if_changed(&waiters, WAITERS.1)?;
    // The plugin itself last: it imports the others.
    for (name, text) in MODULES.iter().rev() {
        write_if_changed(&dir.join(name), text)?;
    }
    let prefix = match prefix.trim_end_matches('/') {
        "" => String::new(),
        prefix => format!("        DefaultS3ObjectKeyPrefix: {prefix}\n"),
    };
    let yaml = format!(
        "# The SageMaker SDKs' defaults for this Shoal server; written by `shoal env`.\nSchemaVersion: \
         '1.0'\nSageMaker:\n  PythonSDK:\n    \
         Modules:\n      TelemetryOptOut: true\n      Session:\n        DefaultS3Bucket: {bucket}\n{prefix}"
    );
    write_if_changed(defaults, &yaml)
}

/// Leaves a file alone that says the same already: others may be reading it.
fn write_if_changed(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    // A name of its own for each process: several may write at once.
    let readable = fs::Permissions::from_mode(0o644);
    let mut new =
        tempfile::Builder::new().permissions(readable).tempfile_in(path.parent().unwrap_or(Path::new(".")))?;
    new.write_all(text.as_bytes())?;
    new.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_in_front_once() {
        let dir = Path::new("/data/client");
        for (before, expected) in
            [("", "/data/client"), ("/a:/b", "/data/client:/a:/b"), ("/a:/data/client", "/data/client:/a")]
        {
            assert_eq!(search_path(dir, before), expected);
        }
        assert_eq!(no_proxy("127.0.0.1", "example.org, 127.0.0.1"), "127.0.0.1,example.org");
    }

    #[test]
    fn several_processes_may_write_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = || {
            for bucket in ["one", "two"].iter().cycle().take(40) {
                write_files(dir.path(), &dir.path().join("sagemaker.yaml"), bucket, "").expect("written");
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(write))));
        let yaml = fs::read_to_string(dir.path().join("sagemaker.yaml")).expect("the defaults");
        assert!(yaml.ends_with("DefaultS3Bucket: one\n") || yaml.ends_with("DefaultS3Bucket: two\n"), "{yaml}");
    }

    #[test]
    fn sdks_write_below_the_default_prefix() {
        let dir = tempfile::tempdir().expect("a directory");
        let defaults = dir.path().join("sagemaker.yaml");
        write_files(dir.path(), &defaults, "one", "anna/").expect("written");
        let yaml = fs::read_to_string(&defaults).expect("the defaults");
        let session = "      Session:\n        DefaultS3Bucket: one\n        DefaultS3ObjectKeyPrefix: anna\n";
        assert!(yaml.ends_with(session), "{yaml}");
    }

    #[test]
    fn misleading_variables() {
        for (name, expected) in
            [("AWS_PROFILE", true), ("AWS_ENDPOINT_URL_S3", true), ("AWS_ENDPOINT_URL", false), ("AWS_REGION", false)]
        {
            assert_eq!(misleads(name), expected, "{name}");
        }
    }
}
