//! What the program finds around itself, made ready before it starts: its Python environment, or
//! the files of its image.

use shoal_environments::{EnvironmentError, Prepared, Watcher, without_debugger, without_ours};
use shoal_link::{Assignment, PythonEnvironment};
use shoal_sandbox::{SandboxSpec, Support};

use super::Agent;
use crate::Options;
use crate::python::PackageFor;
use crate::{image, package, python, toolkit};

/// Why a job goes without.
const NO_PACKAGE: &str = "it is in Shoal's Python package, and this server has none; build its wheel (cargo xtask \
                          package in a checkout) and name it \
                          as python_package in shoal.toml";

/// Why our package is not laid over an environment that has this version of Python.
fn why_not(options: &Options, version: &str) -> String {
    match options.python_package {
        Some(_) => format!(
            "it is in Shoal's Python package, which is for Python 3.10 and newer, and this environment has {version}"
        ),
        None => NO_PACKAGE.to_owned(),
    }
}

/// Tells the job's log what is made, and asks whether the job is still wanted.
struct Waiting<'a, 'b>(&'a mut Agent<'b>);

impl Watcher for Waiting<'_, '_> {
    fn line(&mut self, line: &str) {
        // If nobody takes it any more, a wish to stop is on its way.
        let _ = self.0.tell(&[line.to_owned()]);
    }

    fn is_to_stop(&mut self) -> bool {
        self.0.is_to_stop()
    }
}

impl Agent<'_> {
    /// Puts into the description of the instance what the assignment wants, and what it was found
    /// to require on top; it stays while the agent has it.
    pub(super) fn surround(
        &mut self,
        assignment: &Assignment,
        found: &str,
        spec: &mut SandboxSpec,
        support: &Support,
    ) -> Result<(), EnvironmentError> {
        if let Some(wanted) = &assignment.python {
            let prepared = self.python(wanted, found, assignment)?;
            python::show(self.python.insert(prepared), spec);
            let hooks = assignment.debug_hook.is_some() || assignment.step_times().is_some();
            toolkit::show(&python::environment(wanted), &self.home.toolkit(), spec, support, hooks).map_err(
                |source| EnvironmentError::Io { what: "write SageMaker's modules for scripts".to_owned(), source },
            )?;
        }
        if let Some(root) = &assignment.root {
            let images = self.options.images.clone();
            let tree = image::prepare(&images, root, &assignment.program, &mut Waiting(self))?;
            let layer = self.home.root_layer();
            let layer = layer.map_err(|source| EnvironmentError::Io {
                what: "make a place for what changes in the image's files".to_owned(),
                source,
            })?;
            image::show(self.image.insert(tree), layer, assignment, spec);
        }
        Ok(())
    }

    /// The environment with what the job requires on top.
    fn python(
        &mut self,
        wanted: &PythonEnvironment,
        found: &str,
        assignment: &Assignment,
    ) -> Result<Prepared, EnvironmentError> {
        let (cache, ml) = (self.options.environments.clone(), self.home.ml());
        let below = python::prepare(&cache, wanted, &mut Waiting(self))?;
        let mut requirements = python::requirements(assignment, &ml)?;
        let tools = package::tools(&python::environment(wanted));
        if !tools.is_empty() && package::is_of(assignment, &ml) {
            let name = &wanted.name;
            // If nobody takes it any more, a wish to stop is on its way.
            let _ = self.tell(&[format!(
                "setup.py needs more than the environment {name} has, laid over it: {}",
                tools.join(", ")
            )]);
            // Behind a line that its author may have left open.
            requirements.push_str(&format!("\n\n{}", tools.join("\n")));
        }
        requirements.push_str(&format!("\n\n{found}"));
        if toolkit::brings_debugger(&python::environment(wanted)) {
            let (others, satisfied) = without_debugger(&requirements);
            requirements = others;
            let _ = self.tell(&satisfied);
        }
        let options = self.options.clone();
        let (others, satisfied) = without_ours(&requirements);
        let required = (!satisfied.is_empty()).then_some(PackageFor::Required);
        let package_for = python::package_for(assignment, wanted).or(required);
        let version = &below.record().python;
        let wheel =
            options.python_package.as_deref().filter(|_| package_for.is_some() && python::takes_package(version));
        if wheel.is_some() {
            requirements = others;
            let _ = self.tell(&satisfied);
        } else if required.is_some() {
            let _ = self.tell(&[format!(
                "Horovod and smdistributed are looked for at the package index: {}",
                why_not(&options, version)
            )]);
        }
        if package_for == Some(PackageFor::ParameterServer) && wheel.is_none() {
            // A script may do without: instances have addresses of servers all the same.
            let _ = self
                .tell(&[format!("shoal.parameter_server is not there for the script: {}", why_not(&options, version))]);
        }
        // Instances without a route to the server are isolated.
        let cache = if assignment.endpoint.is_none() { cache.isolated() } else { cache };
        cache.overlay(below, &requirements, wheel, &mut Waiting(self))
    }
}
