//! `cargo run --release -p shoal-server --example snapshot_delays -- [JOBS]`: how long commands
//! wait while a large state is snapshot.

use std::{env, error::Error};

fn main() -> Result<(), Box<dyn Error>> {
    let jobs = env::args().nth(1).map_or(Ok(100_000), |jobs| jobs.parse())?;
    let dir = tempfile::tempdir()?;
    let delays = shoal_server::snapshot_delays(dir.path(), jobs)?;
    println!("{jobs} live jobs: {delays:#?}");
    Ok(())
}
