//! What the agent has said and the server has not yet acknowledged: a ring of bytes in a file of
//! bounded size.
//!
//! It holds whole frames, exactly as they go over the wire, so sending is copying. It does not
//! survive the agent: when the agent dies, so does its instance, and there is nobody left to speak
//! for.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// A bounded queue of numbered frames on disk.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
    capacity: u64,
    /// Bytes ever appended: positions count bytes.
    end: u64,
    /// Bytes ever acknowledged.
    start: u64,
    /// Lengths of the frames between the two, the first of which has number `first`.
    lengths: VecDeque<u32>,
    first: u64,
    /// The position whose place is the file's beginning; those after it follow, around the ring.
    origin: u64,
}

impl Spool {
    /// An empty spool that will hold at most `capacity` bytes; its first frame has number 1.
    pub(crate) fn create(path: &Path, capacity: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self { file, capacity, end: 0, start: 0, lengths: VecDeque::new(), first: 1, origin: 0 })
    }

    /// Takes the disk's blocks for the beginning of the file: once the server has caught up a frame
    /// of up to `bytes` finds room though the program has filled the disk.
    pub(crate) fn reserve(&self, bytes: u64) -> io::Result<()> {
        let block = [0; 64 << 10];
        (0..bytes.div_ceil(block.len() as u64))
            .try_for_each(|number| self.file.write_all_at(&block, number * block.len() as u64))
    }

    /// The number that the next frame will have.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.lengths.len() as u64
    }

    /// Position behind the last frame.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Position of the first frame that is not acknowledged.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Whether a frame of so many bytes can be appended now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.end - self.start + bytes as u64 <= self.capacity
    }

    /// Appends a frame for which there is room. After an error the spool is as before.
    pub(crate) fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        if !self.has_room(frame.len()) {
            return Err(io::Error::other(format!(
                "a frame of {} bytes does not fit the spool of {} bytes",
                frame.len(),
                self.capacity
            )));
        }
        let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
        if self.lengths.is_empty() {
            // Starting over where there are blocks already keeps the file as small as can be, and
            // gets by on a full disk.
            self.origin = self.end;
        }
        let (place, until_wrap) = self.place(self.end);
        let (first, second) = frame.split_at(frame.len().min(until_wrap));
        self.file.write_all_at(first, place)?;
        self.file.write_all_at(second, 0)?;
        self.end += u64::from(length);
        self.lengths.push_back(length);
        Ok(())
    }

    /// Everything up to frame `number` is stored elsewhere. An empty spool goes on behind it, so
    /// that what an earlier agent of the same instance has said is not said over.
    pub(crate) fn acknowledge(&mut self, number: u64) {
        while self.first <= number
            && let Some(length) = self.lengths.pop_front()
        {
            self.start += u64::from(length);
            self.first += 1;
        }
        if self.lengths.is_empty() {
            self.first = self.first.max(number.saturating_add(1));
        }
    }

    /// Fills `buffer` with bytes from `position` on, which is between [`Self::start`] and
    /// [`Self::end`]; gives how many.
    pub(crate) fn read(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (place, until_wrap) = self.place(position);
        let available = usize::try_from(self.end - position).unwrap_or(usize::MAX);
        let count = buffer.len().min(available).min(until_wrap);
        self.file.read_exact_at(&mut buffer[..count], place)?;
        Ok(count)
    }

    /// Place in the file, and how many bytes follow it before the file begins anew.
    fn place(&self, position: u64) -> (u64, usize) {
        let place = (position - self.origin) % self.capacity;
        (place, usize::try_from(self.capacity - place).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(capacity: u64) -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::create(&dir.path().join("spool"), capacity).unwrap();
        (dir, spool)
    }

    fn read_from(spool: &Spool, mut position: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buffer = [0; 7];
        while position < spool.end() {
            let count = spool.read(position, &mut buffer).unwrap();
            all.extend_from_slice(&buffer[..count]);
            position += count as u64;
        }
        all
    }

    #[test]
    fn what_is_not_acknowledged_is_read_again_across_many_wraps() {
        let (dir, mut spool) = spool(100);
        let mut waiting: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        for round in 0_u64..500 {
            let frame = vec![round as u8; 1 + (round as usize * 7) % 40];
            while !spool.has_room(frame.len()) {
                let (number, _) = waiting.pop_front().unwrap();
                spool.acknowledge(number);
            }
            assert_eq!(spool.next_number(), round + 1);
            spool.append(&frame).unwrap();
            waiting.push_back((round + 1, frame));
            let expected: Vec<u8> = waiting.iter().flat_map(|(_, frame)| frame.iter().copied()).collect();
            assert_eq!(read_from(&spool, spool.start()), expected, "round {round}");
        }
        assert!(dir.path().join("spool").metadata().unwrap().len() <= 100);
    }

    #[test]
    fn acknowledgements_may_come_late_twice_or_for_many() {
        let (_dir, mut spool) = spool(100);
        for byte in 0..5 {
            spool.append(&[byte; 10]).unwrap();
        }
        for (number, left) in [(0, 50), (2, 30), (1, 30), (2, 30), (4, 10), (99, 0)] {
            spool.acknowledge(number);
            assert_eq!(spool.end() - spool.start(), left, "after {number}");
        }
        assert_eq!(spool.next_number(), 100);
    }

    #[test]
    fn a_server_that_keeps_up_needs_no_more_than_a_frame_of_disk() {
        let (dir, mut spool) = spool(1000);
        for number in 1..100 {
            spool.append(&[number as u8; 30]).unwrap();
            assert_eq!(read_from(&spool, spool.start()), [number as u8; 30]);
            spool.acknowledge(number);
        }
        assert_eq!(dir.path().join("spool").metadata().unwrap().len(), 30);
    }

    #[test]
    fn a_full_spool_takes_nothing_more() {
        let (_dir, mut spool) = spool(10);
        spool.append(&[1; 10]).unwrap();
        assert!(!spool.has_room(1));
        spool.append(&[2]).unwrap_err();
        assert_eq!(read_from(&spool, spool.start()), [1; 10]);
        spool.acknowledge(1);
        assert!(spool.has_room(10) && !spool.has_room(11));
    }
}
