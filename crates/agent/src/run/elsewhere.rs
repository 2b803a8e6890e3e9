//! What an assignment of a server on another machine lacks: its inputs as directories, libraries of
//! built-in algorithms, a way to the server's port.

use std::fs;

use shoal_link::{Assignment, Delivery, Input, Program};

use super::Agent;
use crate::fetched::Fetched;
use crate::inputs::{InputError, localise};
use crate::instance::InstanceError;
use crate::relay::Relay;

/// The assignment with all of that; `None` if it lacks nothing.
pub(super) fn bring(agent: &mut Agent<'_>, assignment: &Assignment) -> Result<Option<Assignment>, InstanceError> {
    if !agent.options.server.is_remote() {
        return Ok(None);
    }
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
        localise(&options, &dir, input, &mut || agent.is_to_stop())?;
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
    Ok(Some(assignment))
}
