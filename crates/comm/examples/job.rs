//! What a training job's program does to have a process group over its instances: nothing but join.
//!
//! Submitted to Shoal on the image `shoal/host` with several instances, or started by any launcher
//! that sets `MASTER_ADDR`, `MASTER_PORT`, `RANK` and `WORLD_SIZE`.

use shoal_comm::{ProcessGroupExt, ReduceOp, join, rendezvous::Config};

fn main() -> Result<(), shoal_comm::Error> {
    let group = join(Config::from_env()?)?;
    let mut sum = vec![group.rank() as f32 + 1.0; 1 << 20];
    group.all_reduce(&mut sum, ReduceOp::Sum)?;
    println!("rank {} of {}: the sum is {}", group.rank(), group.size(), sum[0]);
    group.barrier()
}
