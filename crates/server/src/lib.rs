//! The shell: HTTP, auth, timers, workers; requests become commands, actions become effects.
