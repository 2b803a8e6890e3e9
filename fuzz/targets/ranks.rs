//! What ranks of a process group read of each other: handshakes, questions to the store, control
//! messages.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    shoal_comm::fuzzing::read_anything(input);
});
