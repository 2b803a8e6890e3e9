//! pytest, as all tests in Python are run.

use std::{path::Path, process::Command};

use crate::{frameworks, soak, workspace::Workspace};

/// Seconds after which a test is ended: several times what the slowest one takes on a loaded
/// machine.
const TEST_TIMEOUT_S: u32 = 600;

/// pytest in a folder of the checkout; the caller adds what to run.
pub(crate) fn pytest(workspace: &Workspace, python: &Path, folder: &str) -> Command {
    let mut pytest = Command::new(python);
    pytest.current_dir(workspace.root.join(folder));
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(format!("--timeout={TEST_TIMEOUT_S}"));
    // What is imported is compiled once, and not into the checkout. A machine that has nothing
    // written would compile it for each process.
    pytest.env("PYTHONPYCACHEPREFIX", workspace.target.join("pycache")).env_remove("PYTHONDONTWRITEBYTECODE");
    if frameworks::all_are_wanted() || soak::is_asked_for() {
        pytest.env("SHOAL_TEST_ALL", "1");
    }
    pytest
}
