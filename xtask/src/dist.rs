//! `cargo xtask dist [--check]`: what is handed to users, in `target/dist`: an archive with the
//! program, its man pages, completions and the wheel for jobs; the wheel for `pip install`, with
//! the program in it; and their checksums. The same commit, toolchain and path give the same bytes.
//!
//! The program is linked with the C library of the machine that builds it and needs one that is as
//! new. A static one would be worse: it loads libxgboost and NCCL when it runs, which musl's static
//! programs cannot do at all, and glibc's (tried) only where exactly the builder's glibc is
//! installed. Where neither is needed, `--static` makes one (`static_program.rs`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, plain_cargo, shown, succeeds};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds, packs, and with `--check` tries what came of it.
///
/// # Errors
/// Something does not build, cannot be packed, or does not do what it must.
pub(crate) fn run(workspace: &Workspace, python: &Path) -> Result<bool> {
    let is_checked = env::args().any(|word| word == "--check");
    let built = workspace.target.join("dist-build");
    let dist = Dist::new(workspace, python, "dist", built.join("release/shoal"), built.join("wheels"))?;
    dist.build(&built)?;
    dist.pack()?;
    if is_checked {
        dist.check()?;
    }
    println!("{}:\n{}", dist.dir.display(), dist.sums()?);
    Ok(true)
}

/// Packs and tries what the tests have built, which is not optimised: does all but the optimised
/// build work?
///
/// # Errors
/// As of [`run`].
pub(crate) fn check_debug(workspace: &Workspace, python: &Path) -> Result<()> {
    let dist = Dist::new(
        workspace,
        python,
        "dist-debug",
        workspace.target.join("debug/shoal"),
        workspace.target.join("wheels"),
    )?;
    dist.pack()?;
    dist.check()?;
    // A copy of the debug build is large.
    Ok(fs::remove_dir_all(&dist.dir)?)
}

struct Dist<'a> {
    workspace: &'a Workspace,
    python: &'a Path,
    /// Where all comes to lie.
    dir: PathBuf,
    /// `shoal-0.1.0-x86_64-linux-gnu`.
    name: String,
    /// Seconds since the epoch of the newest commit: the time of every file.
    epoch: String,
    /// What is packed, and the directory that has the wheel to which it is added.
    program: PathBuf,
    wheels: PathBuf,
}

impl<'a> Dist<'a> {
    fn new(workspace: &'a Workspace, python: &'a Path, dir: &str, program: PathBuf, wheels: PathBuf) -> Result<Self> {
        let epoch = output(Command::new("git").current_dir(&workspace.root).args(["log", "-1", "--format=%ct"]))?;
        let name = format!("shoal-{VERSION}-{}-linux-gnu", env::consts::ARCH);
        Ok(Self {
            workspace,
            python,
            dir: workspace.target.join(dir),
            name,
            epoch: epoch.trim().to_owned(),
            program,
            wheels,
        })
    }

    fn sums(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("SHA256SUMS"))?)
    }

    /// Paths of the machine that builds stay out of what is built.
    fn flagged(&self, command: &mut Command) -> Result<()> {
        let home = env::var_os("HOME").context("HOME is not set")?;
        let cargo_home = env::var_os("CARGO_HOME").map_or_else(|| Path::new(&home).join(".cargo"), PathBuf::from);
        let flags = format!(
            "--remap-path-prefix={}=/shoal --remap-path-prefix={}=/cargo",
            self.workspace.root.display(),
            cargo_home.display()
        );
        command.env("RUSTFLAGS", flags).env("SOURCE_DATE_EPOCH", &self.epoch);
        Ok(())
    }

    /// The program, and the wheel of the Python package without it, in a directory apart from other
    /// builds: the flags differ.
    fn build(&self, built: &Path) -> Result<()> {
        let mut program = plain_cargo(self.workspace);
        program.args(["build", "--release", "--locked", "--package", "shoal-cli", "--target-dir"]).arg(built);
        self.flagged(&mut program)?;
        ensure!(succeeds(&mut program)?, "the program does not build");
        renew(&self.wheels)?;
        let mut wheel = Command::new(self.python);
        wheel.current_dir(self.workspace.root.join("py"));
        wheel
            .args(["-m", "maturin", "build", "--locked", "--release", "--compatibility", "linux", "--interpreter"])
            .arg(self.python);
        wheel.arg("--target-dir").arg(built).arg("--out").arg(&self.wheels);
        self.flagged(&mut wheel)?;
        ensure!(succeeds(&mut wheel)?, "the Python package does not build");
        Ok(())
    }

    fn pack(&self) -> Result<()> {
        renew(&self.dir)?;
        let wheel = only(&self.wheels)?;
        let mut add = Command::new(self.python);
        add.arg(self.workspace.root.join("xtask/python/add_program.py")).arg(wheel).arg(&self.program).arg(&self.dir);
        let wheel = output(add.env("SOURCE_DATE_EPOCH", &self.epoch))?;
        let wheel = wheel.trim();
        self.tree(wheel)?;
        let archive = format!("{}.tar.gz", self.name);
        let mut tar = Command::new("tar");
        tar.current_dir(&self.dir).args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--mode=u+w,go-w",
        ]);
        // gzip writes no name and no time.
        tar.arg(format!("--mtime=@{}", self.epoch)).args([
            "--use-compress-program=gzip -n9",
            "-cf",
            &archive,
            &self.name,
        ]);
        ensure!(succeeds(&mut tar)?, "the archive cannot be packed");
        fs::remove_dir_all(self.dir.join(&self.name))?;
        let sums = output(Command::new("sha256sum").current_dir(&self.dir).args([archive.as_str(), wheel]))?;
        fs::write(self.dir.join("SHA256SUMS"), sums)?;
        Ok(())
    }

    /// What the archive holds. The program finds the wheel for its jobs in `wheels` beside its
    /// directory.
    fn tree(&self, wheel: &str) -> Result<()> {
        let tree = self.dir.join(&self.name);
        let [bin, wheels, man] = ["bin", "wheels", "share/man/man1"].map(|path| tree.join(path));
        for directory in [&bin, &wheels, &man] {
            fs::create_dir_all(directory)?;
        }
        fs::copy(&self.program, bin.join("shoal"))?;
        fs::copy(self.dir.join(wheel), wheels.join(wheel))?;
        for file in ["LICENSE", "README.md", "CHANGELOG.md"] {
            fs::copy(self.workspace.root.join(file), tree.join(file))?;
        }
        output(Command::new(&self.program).arg("man").arg(&man))?;
        for (shell, path) in [
            ("bash", "share/bash-completion/completions/shoal"),
            ("zsh", "share/zsh/site-functions/_shoal"),
            ("fish", "share/fish/vendor_completions.d/shoal.fish"),
        ] {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().context("a path in a directory")?)?;
            fs::write(path, output(Command::new(&self.program).args(["completions", shell]))?)?;
        }
        Ok(())
    }

    /// Packs once more for the same bytes; installs the wheel into an empty environment and the
    /// archive into an empty directory, and uses both.
    fn check(&self) -> Result<()> {
        let first = self.sums()?;
        self.pack()?;
        ensure!(self.sums()? == first, "packed twice, it is not the same:\n{first}");
        output(Command::new("sha256sum").current_dir(&self.dir).args(["--check", "--strict", "SHA256SUMS"]))?;
        let scratch = self.workspace.target.join("dist-check");
        renew(&scratch)?;
        let venv = scratch.join("venv");
        ensure!(succeeds(Command::new(self.python).args(["-m", "venv"]).arg(&venv))?, "no virtual environment");
        let wheels = fs::read_dir(&self.dir)?.filter_map(|entry| Some(entry.ok()?.path()));
        let wheel = wheels
            .into_iter()
            .find(|path| path.extension().is_some_and(|end| end == "whl"))
            .context("there is no wheel")?;
        let mut install = Command::new(venv.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]).arg(&wheel);
        ensure!(succeeds(&mut install)?, "the wheel cannot be installed");
        output(Command::new(venv.join("bin/python")).args(["-c", "import shoal.tuner"]))?;
        ensure!(succeeds(
            Command::new("tar").arg("-C").arg(&scratch).arg("-xzf").arg(self.dir.join(format!("{}.tar.gz", self.name)))
        )?);
        let unpacked = scratch.join(&self.name);
        for page in
            ["share/man/man1/shoal.1", "share/man/man1/shoal-train.1", "share/bash-completion/completions/shoal"]
        {
            ensure!(fs::read_to_string(unpacked.join(page))?.contains("shoal"), "{page} is empty");
        }
        for program in [unpacked.join("bin/shoal"), venv.join("bin/shoal")] {
            ensure!(
                output(Command::new(&program).arg("--version"))?.trim() == format!("shoal {VERSION}"),
                "{}",
                program.display()
            );
        }
        let demo = Command::new(venv.join("bin/shoal")).arg("demo").current_dir(&scratch).status()?;
        ensure!(demo.success(), "the demo of the installed program failed");
        Ok(fs::remove_dir_all(&scratch)?)
    }
}

/// The directory, empty.
fn renew(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| format!("could not make {}", directory.display()))
}

fn only(directory: &Path) -> Result<PathBuf> {
    Ok(fs::read_dir(directory)?.next().with_context(|| format!("{} is empty", directory.display()))??.path())
}

/// What a command prints; an error if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let ended = command.output().with_context(|| format!("could not run {}", shown(command)))?;
    ensure!(ended.status.success(), "{} failed: {}", shown(command), String::from_utf8_lossy(&ended.stderr));
    Ok(String::from_utf8(ended.stdout)?)
}
