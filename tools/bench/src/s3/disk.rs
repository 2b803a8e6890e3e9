//! The same bytes without a server: what the disk itself takes.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    path::Path,
    time::Instant,
};

use anyhow::{Result, ensure};

use super::{
    WORK,
    load::{Load, forget},
};
use crate::beside::beside;

/// Bytes at a time.
const PIECE: usize = 1 << 20;

/// In the order of [`WORK`]: the large file counts for requests in one and in parts.
pub(super) fn run(load: &Load, dir: &Path) -> Result<[f64; WORK.len()]> {
    let large = dir.join("large");
    let started = Instant::now();
    let mut file = File::create(&large)?;
    load.large.chunks(PIECE).try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()?;
    let write = load.megabytes() / started.elapsed().as_secs_f64();
    drop(file);

    forget(dir)?;
    let started = Instant::now();
    let (mut file, mut piece, mut read) = (File::open(&large)?, vec![0; PIECE], 0);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            length => {
                ensure!(piece[..length] == load.large[read..read + length], "other bytes were read");
                read += length;
            }
        }
    }
    let reading = load.megabytes() / started.elapsed().as_secs_f64();
    fs::remove_file(&large)?;

    let path = |number: usize| dir.join(format!("{number}"));
    let started = Instant::now();
    beside(load.connections, load.small, &|| Ok(()), &|(), number| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(path(number))?;
        file.write_all(&load.content(number))?;
        Ok(file.sync_all()?)
    })?;
    let puts = load.small as f64 / started.elapsed().as_secs_f64();
    forget(dir)?;
    let started = Instant::now();
    beside(load.connections, load.small, &|| Ok(()), &|(), number| {
        ensure!(fs::read(path(number))? == load.content(number), "other bytes were read");
        Ok(())
    })?;
    let gets = load.small as f64 / started.elapsed().as_secs_f64();
    Ok([write, write, reading, reading, puts, gets])
}
