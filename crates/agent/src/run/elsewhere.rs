//! What an assignment of a server on another machine lacks: its inputs as directories, libraries of
//! built-in algorithms, a way to the server's port.

use std::fs;
use std::io;
use std::path::Path;

use shoal_link::{Assignment, Delivery, Input, Program};
use shoal_sandbox::SandboxError;

use super::Agent;
use crate::Options;
use crate::causes::with_causes;
use crate::fetched::Fetched;
use crate::inputs::{InputError, localise};
use crate::instance::InstanceError;
use crate::node;
use crate::objects::{Keeps, PlaceError};
use crate::relay::Relay;
use crate::shared_objects::SharedObjects;

/// The assignment with all of that; `None` if it lacks nothing.
pub(super) fn bring(agent: &mut Agent<'_>, assignment: &Assignment) -> Result<Option<Assignment>, InstanceError> {
    if !agent.options.server.is_remote() {
        return Ok(None);
    }
    let cache = agent.options.objects.dir().to_owned();
    bring_all(agent, assignment).map(Some).map_err(|error| match error {
        InstanceError::Input(error) => {
            // A machine without a name is named by nothing.
            let node = node::name().unwrap_or_default();
            if matches!(&error, InputError::Place(error) if error.is_full()) {
                // Parts that have come must not keep the next job from running here.
                let _ = agent.options.objects.make_room();
            }
            InstanceError::Input(error.on_node(&node, &cache))
        }
        other => other,
    })
}

/// What a sandbox of a node has no space for: copies of inputs, where programs may change them and
/// there is no overlay.
pub(super) fn full(options: &Options, error: &SandboxError) -> InstanceError {
    let source = io::Error::new(io::ErrorKind::StorageFull, with_causes(error));
    let node = node::name().unwrap_or_default();
    InstanceError::Input(InputError::Place(source.into()).on_node(&node, options.objects.dir()))
}

fn bring_all(agent: &mut Agent<'_>, assignment: &Assignment) -> Result<Assignment, InstanceError> {
    let has_shared = agent.has_shared(assignment);
    agent.pass_on(assignment, has_shared)?;
    let mut assignment = assignment.clone();
    let dir = agent.home.inputs();
    fs::create_dir_all(&dir).map_err(|error| InputError::Place(error.into()))?;
    let options = agent.options.clone();
    let mut fetched = Fetched::default();
    let mut notes = Vec::new();
    for channel in &mut assignment.channels {
        notes.extend(fetched.add(&options, &dir, channel, &mut || agent.is_to_stop())?);
    }
    agent.fetched = fetched;
    // If the outbox is closed, a wish to stop is on its way.
    let _ = agent.tell(&notes);
    let (mut source, mut checkpoints) = (None, None);
    if let Program::Script { source: of_script, .. } = &mut assignment.program {
        source = of_script.as_mut();
    }
    if let Some(checkpoint) = &mut assignment.checkpoint {
        checkpoints = checkpoint.tree.as_mut();
    }
    let channels = assignment.channels.iter_mut().filter(|it| !matches!(it.delivery, Delivery::Pipe(_)));
    let channels = channels.map(|channel| &mut channel.tree);
    let of_rules = assignment.rules.iter_mut().flat_map(|rule| rule.source.iter_mut().chain(&mut rule.other_runs));
    let inputs: Vec<&mut Input> = channels.chain(source).chain(checkpoints).chain(of_rules).collect();
    for input in inputs {
        bring_input(agent, &dir, input)?;
    }
    if let Program::Builtin { name, library_dirs, variables, .. } = &mut assignment.program {
        let found = (options.libraries.0)(name).map_err(InstanceError::Library)?;
        library_dirs.extend(found.dirs);
        variables.extend(found.variables);
    }
    if let Some(endpoint) = &mut assignment.endpoint {
        let relay = Relay::start(&options).map_err(InstanceError::Relay)?;
        endpoint.server_address = Some(relay.address().to_string());
        agent.relay = Some(relay);
    }
    Ok(assignment)
}

/// Makes a directory of an input: in the directory that all nodes share, or of the node's cache.
fn bring_input(agent: &mut Agent<'_>, dir: &Path, input: &mut Input) -> Result<(), InputError> {
    let options = agent.options.clone();
    if let Some(mut shared) = agent.shared.take_if(|shared| !shared.is_given_up) {
        let brought = localise(&options, &shared, &shared.trees(), input, &mut || agent.is_to_stop());
        match brought {
            Err(InputError::Place(error)) if !matches!(error, PlaceError::Damaged { .. }) => {
                let shown = options.shared.as_ref().map_or_else(Default::default, |it| it.dir.display().to_string());
                // If the outbox is closed, a wish to stop is on its way.
                let _ = agent.tell(&[format!(
                    "the shared directory {shown} takes no more ({}): this node keeps the inputs in its own cache; free \
                     some space there",
                    with_causes(&error)
                )]);
                shared.is_given_up = true;
                agent.shared = Some(shared);
            }
            brought => {
                agent.shared = Some(shared);
                return brought;
            }
        }
    }
    localise(&options, &options.objects, dir, input, &mut || agent.is_to_stop())
}

impl Agent<'_> {
    /// Whether there is a directory that all nodes share; the log has why not where one is set.
    fn has_shared(&mut self, assignment: &Assignment) -> bool {
        let Some(place) = &self.options.shared else { return false };
        if self.shared.is_none() {
            let run = format!("{}-{}", self.options.data_id, self.options.attempt);
            match SharedObjects::open(place, &run, assignment.host) {
                Ok(shared) => self.shared = Some(shared),
                Err(problem) => {
                    // If the outbox is closed, a wish to stop is on its way.
                    let _ = self.tell(&[format!("{problem}; this node keeps the inputs in its own cache")]);
                }
            }
        }
        self.shared.as_ref().is_some_and(|shared| !shared.is_given_up)
    }
}
