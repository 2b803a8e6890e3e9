//! Artifacts on their way in: the parts that an agent sends, kept durable until the whole is
//! stored.
//!
//! One file for each host and artifact, a run of records `u64 seq, u32 length, bytes`. A part that
//! comes again after a crash is recognised by its number; what was never acknowledged, such as a
//! record cut short by a crash, is cut off.

use shoal_plane::Host;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use shoal_link::Artifact;

const HEADER: u64 = 12;

/// Where the parts of one artifact of one host are kept.
pub(crate) fn path(run_dir: &Path, host: Host, artifact: Artifact) -> PathBuf {
    let name = match artifact {
        Artifact::Model => "model",
        Artifact::Output => "output",
    };
    run_dir.join(format!("parts-{}-{name}", host.0))
}

/// Removes the parts of these hosts.
pub(crate) fn remove(run_dir: &Path, hosts: impl IntoIterator<Item = Host>) -> io::Result<()> {
    let of_host = |host| [Artifact::Model, Artifact::Output].map(|artifact| path(run_dir, host, artifact));
    hosts.into_iter().flat_map(of_host).try_for_each(|path| match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

/// Takes parts, in order.
pub(crate) struct PartsWriter {
    file: File,
    last: u64,
    is_synced: bool,
}

impl PartsWriter {
    /// Opens the file and cuts off what follows the last whole record that was acknowledged: nobody
    /// knows whether more is on the disk, and it comes again.
    pub(crate) fn open(path: &Path, acked: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let length = file.metadata()?.len();
        let (mut end, mut last) = (0, 0);
        while let Some((seq, size)) = header_at(&mut file, end, length)?.filter(|(seq, _)| *seq <= acked) {
            end += HEADER + size;
            last = seq;
        }
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Self { file, last, is_synced: false })
    }

    /// Appends a part unless it is there. Durable after [`PartsWriter::sync`].
    pub(crate) fn append(&mut self, seq: u64, bytes: &[u8]) -> io::Result<()> {
        if seq <= self.last {
            return Ok(());
        }
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut record = Vec::with_capacity(bytes.len() + 12);
        record.extend_from_slice(&seq.to_le_bytes());
        record.extend_from_slice(&size.to_le_bytes());
        record.extend_from_slice(bytes);
        self.is_synced = false;
        self.file.write_all(&record)?;
        self.last = seq;
        Ok(())
    }

    /// Makes durable what was appended, unless it is.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }
}

/// The header of the record at `offset`, if the whole record lies before `length`.
fn header_at(file: &mut File, offset: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if offset + HEADER > length {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(offset))?;
    let mut header = [0; 12];
    file.read_exact(&mut header)?;
    let (seq, size) = header.split_at(8);
    let seq = u64::from_le_bytes(seq.try_into().expect("8 bytes"));
    let size = u64::from(u32::from_le_bytes(size.try_into().expect("4 bytes")));
    Ok((offset + HEADER + size <= length).then_some((seq, size)))
}

/// The parts of one artifact of one host, joined; empty if it sent none.
pub(crate) struct PartsReader {
    file: Option<BufReader<File>>,
    left: u64,
}

impl PartsReader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match File::open(path) {
            Ok(file) => Ok(Self { file: Some(BufReader::with_capacity(256 << 10, file)), left: 0 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self { file: None, left: 0 }),
            Err(error) => Err(error),
        }
    }
}

impl Read for PartsReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Ok(0) };
        while self.left == 0 {
            let mut header = [0; 12];
            match file.read(&mut header[..1])? {
                0 => return Ok(0),
                _ => file.read_exact(&mut header[1..])?,
            }
            self.left = u64::from(u32::from_le_bytes(header[8..].try_into().expect("4 bytes")));
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = file.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn joined(path: &Path) -> Vec<u8> {
        let mut all = Vec::new();
        PartsReader::open(path).unwrap().read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn parts_join_and_repeats_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), Host(1), Artifact::Model);
        assert_eq!(joined(&path), b"");
        let mut writer = PartsWriter::open(&path, 0).unwrap();
        writer.append(4, b"one").unwrap();
        writer.append(5, b"").unwrap();
        writer.append(5, b"again").unwrap();
        writer.append(9, b" two").unwrap();
        writer.sync().unwrap();
        let mut writer = PartsWriter::open(&path, 9).unwrap();
        writer.append(9, b"again").unwrap();
        writer.append(10, b" three").unwrap();
        assert_eq!(joined(&path), b"one two three");
    }

    #[test]
    fn a_record_cut_short_anywhere_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), Host(1), Artifact::Output);
        let mut writer = PartsWriter::open(&path, 1).unwrap();
        writer.append(1, b"whole").unwrap();
        let whole = std::fs::metadata(&path).unwrap().len();
        writer.append(2, b"torn").unwrap();
        let full = std::fs::read(&path).unwrap();
        for cut in whole..full.len() as u64 {
            std::fs::write(&path, &full[..usize::try_from(cut).unwrap()]).unwrap();
            let mut writer = PartsWriter::open(&path, 1).unwrap();
            writer.append(2, b"torn").unwrap();
            assert_eq!(joined(&path), b"wholetorn", "cut at {cut}");
        }
    }

    #[test]
    fn what_was_not_acknowledged_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), Host(1), Artifact::Model);
        let mut writer = PartsWriter::open(&path, 0).unwrap();
        writer.append(1, b"durable").unwrap();
        writer.append(2, b" lost by the disk").unwrap();
        let mut writer = PartsWriter::open(&path, 1).unwrap();
        writer.append(1, b"again").unwrap();
        writer.append(2, b" and sent again").unwrap();
        assert_eq!(joined(&path), b"durable and sent again");
    }

    #[test]
    fn parts_are_whole_and_in_order_wherever_the_file_ends() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let dir = tempfile::tempdir().unwrap();
            let path = path(dir.path(), Host(2), Artifact::Model);
            let parts: Vec<Vec<u8>> = (0..8).map(|seq| vec![seq; [0, 1, 11, 12, 13, 300][random.below(6)]]).collect();
            // Parts are numbers 1 to 8. After each break the agent sends what is not acknowledged.
            let mut acked = 0;
            while acked < parts.len() {
                let mut writer = PartsWriter::open(&path, acked as u64).unwrap();
                let first = acked.saturating_sub(random.below(3));
                let until = acked + 1 + random.below(parts.len() - acked);
                for (seq, part) in (1..).zip(&parts[..until]).skip(first) {
                    writer.append(seq, part).unwrap();
                }
                if random.one_in(2) {
                    writer.sync().unwrap();
                    acked = until;
                } else {
                    // The machine ends: of what was not synced any part is on the disk.
                    drop(writer);
                    let least: usize = parts[..acked].iter().map(|part| part.len() + 12).sum();
                    let length = usize::try_from(std::fs::metadata(&path).unwrap().len()).unwrap();
                    let left = least + random.below(length - least + 1);
                    File::options().write(true).open(&path).unwrap().set_len(left as u64).unwrap();
                }
            }
            assert_eq!(joined(&path), parts.concat(), "seed {seed}");
        }
    }

    #[test]
    fn a_file_that_ends_within_a_part_is_an_error_to_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let path = path(dir.path(), Host(1), Artifact::Model);
        let mut writer = PartsWriter::open(&path, 0).unwrap();
        writer.append(1, b"whole").unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let read = PartsReader::open(&path).unwrap().read_to_end(&mut Vec::new());
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn only_the_parts_of_the_given_hosts_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for (host, artifact) in [(1, Artifact::Model), (1, Artifact::Output), (11, Artifact::Model)] {
            PartsWriter::open(&path(dir.path(), Host(host), artifact), 0).unwrap();
        }
        remove(dir.path(), Host::all(2)).unwrap();
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["parts-11-model"]);
        remove(dir.path(), Host::all(2)).expect("those that are gone are removed");
    }
}
