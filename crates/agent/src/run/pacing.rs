//! Freezes the program of a trial and lets it run again.

use shoal_contract::Resource;
use shoal_sandbox::Control;

use super::{Agent, tell};
use crate::own_log::say;
use crate::wishes::Pause;

impl Agent<'_> {
    /// Orders are repeated; what is so already is so again.
    pub(super) fn pause(&mut self, pause: &Pause, control: &Control) {
        // What is written meanwhile must find nothing of the program running.
        tell(control.freeze());
        self.frozen = true;
        if let Pause::Thaw { until } = pause {
            if let Some(resource) = &mut self.resource
                && resource.until != *until
                && let Err(error) =
                    self.home.write_resource(&Resource { until: *until, ..*resource }).map(|()| resource.until = *until)
            {
                say(format_args!("the program cannot be told how far it may go: {error}"));
            }
            tell(control.thaw());
            self.frozen = false;
        }
    }
}
