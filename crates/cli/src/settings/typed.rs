//! First stage: what was typed, and where.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use shoal_tuner::near;

use super::declared::{Known, SETTINGS};
use super::lists;
use crate::exit::UsageError;

/// Every setting's text and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Typed {
    /// In the order of the list.
    values: Vec<(&'static str, String, Origin)>,
    /// What `shoal.toml` lists as `[[node]]`.
    nodes: Option<(Origin, Vec<toml::Table>)>,
    /// What it lists by name, as [`NAMED`] has it.
    named: BTreeMap<&'static str, (Origin, Named)>,
}

/// Tables by name.
type Named = BTreeMap<String, toml::Table>;

/// What `shoal.toml` lists as `[target.NAME]` and so on, and what that is, for messages.
const NAMED: [(&str, &str); 5] = [
    ("target", "compute targets"),
    ("quota", "quotas"),
    ("role", "roles"),
    ("kms", "keys for encryption"),
    ("bucket", "buckets of other stores"),
];

/// Where a value was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// On the command line.
    Flag(String),
    /// In the environment.
    Variable(String),
    /// In `shoal.toml`.
    File(PathBuf),
    /// Nowhere.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(formatter, "flag {flag}"),
            Self::Variable(name) => write!(formatter, "variable {name}"),
            Self::File(path) => write!(formatter, "file {}", path.display()),
            Self::Default => formatter.write_str("default"),
        }
    }
}

impl Typed {
    /// Looks for each setting among the flags, the environment's variables and `shoal.toml` in the
    /// data directory.
    ///
    /// # Errors
    /// `shoal.toml` cannot be read, is no TOML, or names a setting that there is not.
    pub(crate) fn gather(
        flags: &BTreeMap<String, String>,
        variable: &dyn Fn(&str) -> Option<String>,
        read: &dyn Fn(&Path) -> io::Result<Option<String>>,
    ) -> Result<Self> {
        let mut typed = Self { values: Vec::new(), nodes: None, named: BTreeMap::new() };
        let mut file = (PathBuf::new(), toml::Table::new());
        for setting in SETTINGS {
            let name = setting.name;
            let in_environment = format!("SHOAL_{}", name.to_uppercase());
            let known = Known { variable, earlier: &|name| typed.value(name).to_owned() };
            let (value, origin) = if let Some(value) = flags.get(name) {
                (value.clone(), Origin::Flag(format!("--{}", name.replace('_', "-"))))
            } else if let Some(value) = variable(&in_environment).filter(|value| !value.is_empty()) {
                (value, Origin::Variable(in_environment))
            } else if let Some(value) = file.1.get(name) {
                let text = text(value);
                (text, Origin::File(file.0.clone()))
            } else {
                ((setting.default)(&known), Origin::Default)
            };
            typed.values.push((name, value, origin));
            if name == "data_dir" {
                let read = read_file(typed.data_dir(), read)?;
                file = (read.path, read.settings);
                let origin = Origin::File(file.0.clone());
                typed.nodes = read.nodes.map(|nodes| (origin.clone(), nodes));
                typed.named = read.named.into_iter().map(|(name, it)| (name, (origin.clone(), it))).collect();
            }
        }
        Ok(typed)
    }

    /// The text of a setting.
    pub(crate) fn value(&self, name: &str) -> &str {
        &self.entry(name).1
    }

    /// A setting that is a list, with commas or spaces between.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        self.value(name).split([',', ' ']).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    }

    /// A setting that is a path: in `shoal.toml` it starts from where that lies, elsewhere from the
    /// current directory.
    ///
    /// # Errors
    /// The current directory is gone.
    pub(crate) fn path(&self, name: &str) -> Result<PathBuf> {
        let path = match self.origin(name) {
            Origin::File(file) => file.with_file_name(self.value(name)),
            _ => PathBuf::from(self.value(name)),
        };
        Ok(std::path::absolute(path)?)
    }

    /// The tables of the nodes that `shoal.toml` lists, if it lists any, and where that is.
    pub(crate) fn nodes(&self) -> Option<(&Origin, &[toml::Table])> {
        self.nodes.as_ref().map(|(origin, tables)| (origin, &tables[..]))
    }

    /// The tables that `shoal.toml` lists as `[kind.NAME]`, by name, and where that is.
    pub(crate) fn named(&self, kind: &str) -> Option<(&Origin, &Named)> {
        self.named.get(kind).map(|(origin, tables)| (origin, tables))
    }

    /// Where it was typed.
    pub(crate) fn origin(&self, name: &str) -> &Origin {
        &self.entry(name).2
    }

    /// The first setting: where `shoal.toml` lies, too.
    pub(crate) fn data_dir(&self) -> &Path {
        Path::new(self.value("data_dir"))
    }

    /// All of them, in the order in which they are shown.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &str, &Origin)> {
        self.values.iter().map(|(name, value, origin)| (*name, value.as_str(), origin))
    }

    fn entry(&self, name: &str) -> &(&'static str, String, Origin) {
        self.values
            .iter()
            .find(|(known, ..)| *known == name)
            .expect("code names declared settings only, later ones never")
    }
}

/// As a flag would have it: a list with commas between.
fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(all) => Vec::from_iter(all.iter().map(text)).join(","),
        other => other.to_string(),
    }
}

/// What stands in a table is the setting with both names: `tls = { cert = .. }` is `tls_cert = ..`.
fn flat(table: toml::Table) -> toml::Table {
    let entries = table.into_iter().flat_map(|(name, value)| match value {
        toml::Value::Table(members) => {
            Vec::from_iter(members.into_iter().map(|(member, value)| (format!("{name}_{member}"), value)))
        }
        value => vec![(name, value)],
    });
    entries.collect()
}

/// Takes the nodes out of it.
fn nodes(table: &mut toml::Table, path: &Path) -> Result<Option<Vec<toml::Table>>> {
    let wrong = || UsageError(format!("{}: nodes are a list: write [[node]] above each of them", path.display()));
    let Some(value) = table.remove("node") else { return Ok(None) };
    let tables = value.as_array().ok_or_else(wrong)?.iter().map(|node| Ok(node.as_table().ok_or_else(wrong)?.clone()));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    if tables.is_empty() { Err(wrong().into()) } else { Ok(Some(tables)) }
}

/// Takes the tables of this name out of it: `what`, for messages.
fn named(table: &mut toml::Table, name: &str, what: &str, path: &Path) -> Result<Option<Named>> {
    let wrong = || UsageError(format!("{}: {what} are tables: write [{name}.NAME] above each of them", path.display()));
    let Some(value) = table.remove(name) else { return Ok(None) };
    let tables = value.as_table().ok_or_else(wrong)?.iter();
    let tables = tables.map(|(name, table)| Ok((name.clone(), table.as_table().ok_or_else(wrong)?.clone())));
    Ok(Some(tables.collect::<Result<_>>()?))
}

/// `shoal.toml`.
struct File {
    path: PathBuf,
    settings: toml::Table,
    nodes: Option<Vec<toml::Table>>,
    named: BTreeMap<&'static str, Named>,
}

fn read_file(data_dir: &Path, read: &dyn Fn(&Path) -> io::Result<Option<String>>) -> Result<File> {
    let path = data_dir.join("shoal.toml");
    let text = read(&path).with_context(|| format!("could not read {}", path.display()))?.unwrap_or_default();
    let mut table: toml::Table =
        toml::from_str(&text).map_err(|error| UsageError(format!("{} is not TOML: {error}", path.display())))?;
    let nodes = nodes(&mut table, &path)?;
    let mut by_name = BTreeMap::new();
    for (name, what) in NAMED {
        by_name.extend(named(&mut table, name, what, &path)?.map(|tables| (name, tables)));
    }
    lists::as_text(&mut table);
    let is_of_settings = |name: &str| SETTINGS.iter().any(|setting| setting.name.starts_with(&format!("{name}_")));
    if let Some((unknown, _)) = table.iter().find(|(name, value)| value.is_table() && !is_of_settings(name)) {
        let names = NAMED.map(|(name, _)| name);
        let hint = near(unknown, names);
        let there_are = names.map(|name| format!("[{name}.NAME]")).join(", ");
        return Err(UsageError(format!(
            "{}: there are no tables [{unknown}.NAME] or [{unknown}] here{hint}; there are [[node]], {there_are} and \
             those of settings, such as [tls]",
            path.display()
        ))
        .into());
    }
    let settings = flat(table);
    let may_be_there = |name: &str| SETTINGS.iter().any(|setting| setting.name == name && name != "data_dir");
    if let Some(unknown) = settings.keys().find(|name| !may_be_there(name)) {
        let names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).filter(|name| may_be_there(name)).collect();
        let there_are = names.join(", ");
        return Err(UsageError(format!(
            "{}: there is no setting {unknown:?} for this file; there are: {there_are}",
            path.display()
        ))
        .into());
    }
    Ok(File { path, settings, nodes, named: by_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(flags: &[(&str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Typed> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Typed::gather(&flags, &variable, &|path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned())))
    }

    #[test]
    fn a_table_that_is_not_there_is_named() {
        let error = gather(&[("data_dir", "/data")], &[], "[targets.lab]\nkind = \"slurm\"\n").unwrap_err().to_string();
        assert!(error.contains("no tables [targets.NAME]") && error.contains("did you mean target?"), "{error}");
        assert!(gather(&[("data_dir", "/data")], &[], "[tls]\ncert = \"a.pem\"\n").is_ok());
    }

    #[test]
    fn the_nearest_place_wins() {
        let flags = [("region", "from-flag")];
        let variables =
            [("SHOAL_REGION", "from-variable"), ("SHOAL_LISTEN", "from-variable"), ("SHOAL_DATA_DIR", "/data")];
        let file = "region = \"from-file\"\nlisten = \"from-file\"\ngrace_s = 5\n";
        let typed = gather(&flags, &variables, file).unwrap();
        for (name, value, origin) in [
            ("region", "from-flag", Origin::Flag("--region".into())),
            ("listen", "from-variable", Origin::Variable("SHOAL_LISTEN".into())),
            ("grace_s", "5", Origin::File("/data/shoal.toml".into())),
            ("max_skew_s", "900", Origin::Default),
            ("default_bucket", "sagemaker-from-flag-123456789012", Origin::Default),
        ] {
            assert_eq!((typed.value(name), typed.origin(name)), (value, &origin));
        }
    }

    #[test]
    fn tables_are_settings_with_both_names() {
        let file =
            "tls = { cert = \"box.pem\", key = \"/etc/box.key\" }\n[network]\nallow = [\"pypi.org\", \"hf.co\"]\n";
        let typed = gather(&[("data_dir", "/data")], &[], file).unwrap();
        assert_eq!(
            [typed.path("tls_cert").unwrap(), typed.path("tls_key").unwrap()],
            ["/data/box.pem", "/etc/box.key"].map(PathBuf::from)
        );
        assert_eq!(typed.value("tls"), "true");
        assert_eq!(typed.list("network_allow"), ["pypi.org", "hf.co"]);
    }

    #[test]
    fn the_data_directory_is_xdgs() {
        for (variables, expected) in [
            (&[("HOME", "/home/ann")][..], "/home/ann/.local/share/shoal"),
            (&[("HOME", "/home/ann"), ("XDG_DATA_HOME", "/big")], "/big/shoal"),
            (&[("HOME", "/home/ann"), ("XDG_DATA_HOME", "relative")], "/home/ann/.local/share/shoal"),
        ] {
            assert_eq!(gather(&[], variables, "").unwrap().data_dir(), Path::new(expected));
        }
    }

    #[test]
    fn a_wrong_file_is_explained() {
        for (file, expected) in [
            ("regoin = \"x\"", "/data/shoal.toml: there is no setting \"regoin\" for this file; there are: listen, "),
            ("data_dir = \"/x\"", "/data/shoal.toml: there is no setting \"data_dir\""),
            ("region = ", "/data/shoal.toml is not TOML"),
        ] {
            let error = format!("{:#}", gather(&[("data_dir", "/data")], &[], file).unwrap_err());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
