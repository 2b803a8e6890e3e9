//! Where packages come from and what installs them: uv where it is installed, else pip.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python::on_path;

/// Where packages come from, and the variables of those who fetch them.
#[derive(Debug, Clone, Default)]
pub struct Source {
    /// A directory of wheels: then nothing else is asked.
    pub wheel_house: Option<PathBuf>,
    /// `PATH`, and what [`is_for_installers`].
    pub variables: Vec<(String, String)>,
}

/// Variables that installers and the container engine's command get of the server's environment:
/// their own settings, proxies, certificates, and where they may write. Each begins so.
pub const VARIABLE_PREFIXES: [&str; 20] = [
    "HOME",
    "XDG_",
    "TMPDIR",
    "LANG",
    "LC_",
    "PIP_",
    "UV_",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "SSL_CERT_",
    "REQUESTS_CA_BUNDLE",
    "NETRC",
    "DOCKER_",
    "CONTAINER",
    "REGISTRY_AUTH_FILE",
];

/// Settings of pip that would put packages elsewhere.
const ELSEWHERE: [&str; 5] = ["PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON"];

/// Settings of pip that say which packages it takes from where.
const ORIGIN: [&str; 7] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_NO_INDEX",
    "PIP_CONSTRAINT",
    "PIP_PRE",
    "PIP_CONFIG_FILE",
];

/// Whether installers need this variable.
pub fn is_for_installers(name: &str) -> bool {
    name == "PATH" || VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !ELSEWHERE.contains(&name)
}

impl Source {
    /// With the variables of this process.
    pub fn of_this_process(wheel_house: Option<PathBuf>) -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { wheel_house, variables: variables.filter(|(name, _)| is_for_installers(name)).collect() }
    }

    /// A command with these variables and no others.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Directories of the `PATH`.
    pub(crate) fn path(&self) -> Vec<PathBuf> {
        let path = self.variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_str());
        std::env::split_paths(path.unwrap_or_default()).filter(|directory| directory.is_absolute()).collect()
    }

    /// Where packages come from, for people.
    pub(crate) fn place(&self) -> String {
        match &self.wheel_house {
            Some(directory) => format!("the wheels in {}", directory.display()),
            None => "the package index".to_owned(),
        }
    }

    /// What else than requirements decides which packages they become: the directory of wheels, or
    /// the settings of the index, without passwords, which some change every hour. Empty with pip's
    /// own defaults.
    pub(crate) fn origin(&self) -> String {
        if let Some(directory) = &self.wheel_house {
            return format!("wheels {}", directory.display());
        }
        let mut settings: Vec<_> = self.variables.iter().filter(|(name, _)| ORIGIN.contains(&name.as_str())).collect();
        settings.sort();
        let lines = settings.into_iter().map(|(name, value)| {
            let words = value.split_whitespace().map(|word| match (word.split_once("://"), word.rsplit_once('@')) {
                (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
                _ => word.to_owned(),
            });
            format!("{name}={}\n", Vec::from_iter(words).join(" "))
        });
        lines.collect()
    }

    /// Installs what `file` requires into the environment of the interpreter `python`.
    pub(crate) fn install(&self, python: &Path, file: &Path) -> (Command, &'static str) {
        match on_path("uv", &self.path()).next() {
            Some(uv) => {
                let mut command = self.command(&uv);
                // Copies: what is shared with uv's own cache would be made read-only there, too.
                command
                    .args(["pip", "install", "--link-mode", "copy", "--compile-bytecode", "--no-progress", "--python"])
                    .arg(python);
                (self.of(command, file), "uv pip install")
            }
            None => (self.install_by_pip(python, file), "pip install"),
        }
    }

    /// The same by pip, which takes note of what lies below.
    pub(crate) fn install_by_pip(&self, python: &Path, file: &Path) -> Command {
        self.of(self.pip_install(python), file)
    }

    /// Installs this wheel and nothing else.
    pub(crate) fn install_wheel(&self, python: &Path, wheel: &Path) -> Command {
        let mut command = self.pip_install(python);
        command.args(["--no-index", "--no-deps"]).arg(wheel);
        command
    }

    fn pip_install(&self, python: &Path) -> Command {
        let mut command = self.command(python);
        command.args([
            "-I",
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--no-warn-script-location",
        ]);
        command.args(["--progress-bar", "off"]);
        command
    }

    /// Only wheels, so that no package's own code runs.
    fn of(&self, mut command: Command, file: &Path) -> Command {
        command.args(["--only-binary", ":all:", "--requirement"]).arg(file);
        if let Some(directory) = &self.wheel_house {
            command.args(["--no-index", "--find-links"]).arg(directory);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installers_get_their_own_settings_only() {
        for (name, expected) in [
            ("PATH", true),
            ("PIP_INDEX_URL", true),
            ("UV_CACHE_DIR", true),
            ("HOME", true),
            ("PIP_TARGET", false),
            ("SHOAL_AGENT_TOKEN", false),
            ("PYTHONPATH", false),
        ] {
            assert_eq!(is_for_installers(name), expected, "{name}");
        }
    }

    #[test]
    fn packages_of_another_origin_are_others() {
        let of = |variables: &[(&str, &str)], wheel_house: Option<&str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Source { wheel_house: wheel_house.map(PathBuf::from), variables }.origin()
        };
        assert_eq!(of(&[("PATH", "/bin"), ("PIP_TIMEOUT", "9")], None), "");
        let first = of(
            &[
                ("PIP_INDEX_URL", "https://aws:first@h.example/simple"),
                ("PIP_EXTRA_INDEX_URL", "https://a.example https://b.example"),
            ],
            None,
        );
        assert_eq!(
            first,
            "PIP_EXTRA_INDEX_URL=https://a.example https://b.example\nPIP_INDEX_URL=https://h.example/simple\n"
        );
        assert_eq!(of(&[("PIP_INDEX_URL", "https://h.example")], Some("/srv/wheels")), "wheels /srv/wheels");
    }
}
