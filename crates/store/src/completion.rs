//! The end of an upload: its parts become its object. Where they lie in their places in one file,
//! that file is the object's, and only parts that are elsewhere are copied into it. Otherwise all
//! are copied to a new file.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::path::Path;

use crate::block_sums;
use crate::chosen_parts::{Placed, placed, runs};
use crate::clock::now_ms;
use crate::content_seals;
use crate::error::io_at;
use crate::file_copies::{copy_bytes, copy_data};
use crate::multipart::{remove_upload, upload_row};
use crate::object_rows::put_row;
use crate::object_writer::{Written, file_path};
use crate::part_places::{Closed, punch};
use crate::unsynced;
use crate::{Attributes, ObjectMeta, Objects, PartMeta, PutCondition, StoreError, Version, uploaded_etag};

/// The file of the object to be.
enum Whole {
    Joined(Written, Option<Vec<u8>>),
    /// The parts' own, which nobody writes to.
    InPlace(Closed),
}

impl Objects {
    /// [`Objects::complete_upload`] by this call.
    pub(crate) fn join_upload(
        &self,
        upload: &str,
        chosen: &[(u32, String)],
        checksums: &BTreeMap<String, String>,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let meta = self.upload(upload)?;
        // Before the rows are read, so that no part comes into these files afterwards.
        let closed = self.places.close(&self.index, upload)?;
        let stored = self.parts(upload)?;
        let parts = placed(&stored, chosen)?;
        let size = parts.last().map_or(0, |(at, part)| at + part.size);
        let sums = self.sums_of(&parts)?;
        let seals = meta.attributes.encryption.as_ref().map(|_| self.seals_of(&parts)).transpose()?;
        let whole = match best(closed, &stored, &parts) {
            Some(file) => self.fill(file, size, &parts),
            None => self.join(&parts),
        };
        let whole = whole.map_err(|error| self.why_unreadable(upload, &parts, error))?;
        let mut object = ObjectMeta {
            key: meta.key,
            size,
            etag: uploaded_etag(chosen)
                .ok_or(StoreError::InvalidPart(chosen.last().map_or(0, |(number, _)| *number)))?,
            modified_ms: now_ms(),
            id: whole.id().to_owned(),
            attributes: Attributes { checksums: checksums.clone(), parts: runs(&parts), ..meta.attributes },
            version: Version::default(),
            passthrough: None,
        };
        if let Some(shown) = self.passthrough(&meta.bucket) {
            return self.complete_foreign(shown, (upload, &meta.bucket), whole.path(), &object, condition);
        }
        let row = self.index.write(|tx| {
            // Another call may have completed or aborted it while the parts were joined.
            upload_row(tx, upload)?;
            unsynced::keep(tx, &object.id, whole.content())?;
            if let Some(sums) = &sums {
                block_sums::keep(tx, &object.id, sums)?;
            }
            content_seals::keep(tx, &object.id, seals.as_deref())?;
            self.keep_elsewhere(tx, &object)?;
            let put = put_row(tx, &meta.bucket, &object, condition)?;
            let removed = remove_upload(tx, upload)?;
            // What was read of a part counts only if it is still the same one.
            let same: HashSet<&str> = removed.iter().map(|part| part.id.as_str()).collect();
            match parts.iter().find(|(_, part)| !same.contains(part.id.as_str())) {
                Some((_, part)) => Err(StoreError::InvalidPart(part.number)),
                None => Ok((put, removed)),
            }
        });
        let (put, removed) = whole.named(row)?;
        object.version = put.version;
        let files: BTreeSet<String> =
            removed.into_iter().map(|part| part.holder).chain(self.places.end(upload)).chain(put.removed).collect();
        self.remove_files(files.into_iter().filter(|file| *file != object.id));
        self.committed(&object);
        Ok(object)
    }

    /// The object's blocks are its parts' blocks. Parts of earlier versions have no sums: then the
    /// object has none.
    fn sums_of(&self, parts: &[Placed<'_>]) -> Result<Option<Vec<u8>>, StoreError> {
        self.index.read(|connection| {
            let sums = parts
                .iter()
                .map(|(_, part)| block_sums::of_file(connection, &part.id))
                .collect::<Result<Option<Vec<_>>, _>>()?;
            Ok(sums.map(|sums| sums.concat()))
        })
    }

    /// The parts' seals, in their order.
    fn seals_of(&self, parts: &[Placed<'_>]) -> Result<Vec<u8>, StoreError> {
        self.index.read(|connection| {
            let of_part = |part: &PartMeta| {
                content_seals::of_file(connection, &part.id)?.ok_or(StoreError::InvalidPart(part.number))
            };
            Ok(parts.iter().map(|(_, part)| of_part(part)).collect::<Result<Vec<_>, _>>()?.concat())
        })
    }

    fn join(&self, parts: &[Placed<'_>]) -> Result<Whole, StoreError> {
        let mut writer = self.writer()?;
        for (_, part) in parts {
            let (file, start) = part.bytes();
            writer.append_range(&file_path(&self.files, file), start, part.size)?;
        }
        let (written, content) = writer.finish()?;
        Ok(Whole::Joined(written, content))
    }

    /// Copies into the file the parts that lie elsewhere. What it has for them may be left of
    /// earlier ones.
    fn fill(&self, mut file: Closed, size: u64, parts: &[Placed<'_>]) -> Result<Whole, StoreError> {
        let elsewhere: Vec<_> = parts.iter().filter(|(at, part)| part.bytes() != (file.id(), *at)).collect();
        if !elsewhere.is_empty() {
            self.reserve.ensure()?;
        }
        let path = file.path().to_owned();
        let mut whole = file.open().map_err(io_at("open", &path))?;
        for (at, part) in elsewhere {
            let (source, start) = part.bytes();
            let source = file_path(&self.files, source);
            let mut source = File::open(&source).map_err(io_at("open", &source))?;
            let copy = if punch(&whole, *at, part.size).is_ok() { copy_data } else { copy_bytes };
            copy(&mut source, start, part.size, &mut whole, *at).map_err(io_at("write", &path))?;
        }
        // The parts are durable. The length need not be: a start cuts off what a crash left.
        file.set_length(&whole, size).and_then(|()| whole.sync_all()).map_err(io_at("sync", &path))?;
        Ok(Whole::InPlace(file))
    }

    /// Why the parts' files could not be read: another call may have ended the upload, or replaced
    /// a part, since their rows were read.
    fn why_unreadable(&self, upload: &str, parts: &[Placed<'_>], error: StoreError) -> StoreError {
        let present = match self.parts(upload) {
            Err(ended) => return ended,
            Ok(present) => present.into_iter().map(|part| part.id).collect::<HashSet<_>>(),
        };
        let gone = parts.iter().find(|(_, part)| !present.contains(&part.id));
        gone.map_or(error, |(_, part)| StoreError::InvalidPart(part.number))
    }
}

impl Whole {
    fn id(&self) -> &str {
        match self {
            Self::Joined(written, _) => written.id(),
            Self::InPlace(file) => file.id(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Joined(written, _) => written.path(),
            Self::InPlace(file) => file.path(),
        }
    }

    fn content(&self) -> Option<&[u8]> {
        match self {
            Self::Joined(_, content) => content.as_deref(),
            Self::InPlace(_) => None,
        }
    }

    /// Keeps the file if a row names it now, or if a row may name it at the next start.
    fn named<T>(self, row: Result<T, StoreError>) -> Result<T, StoreError> {
        match self {
            Self::Joined(written, _) => written.named(row),
            Self::InPlace(mut file) => {
                if matches!(row, Ok(_) | Err(StoreError::NotDurable(_))) {
                    file.stay();
                }
                row
            }
        }
    }
}

/// The file with most of the object's bytes in their places. One that also has a part that would
/// have to go is left alone: the completion may fail, and the part must still be there then.
fn best(closed: Vec<Closed>, stored: &[PartMeta], parts: &[Placed<'_>]) -> Option<Closed> {
    let bytes_in_place = |file: &Closed| {
        let in_place: Vec<u64> =
            parts.iter().filter(|(at, part)| part.bytes() == (file.id(), *at)).map(|(_, part)| part.size).collect();
        let there = stored.iter().filter(|part| part.bytes().0 == file.id()).count();
        (in_place.len() == there).then(|| in_place.iter().sum::<u64>())
    };
    let usable = closed.into_iter().filter_map(|file| Some((bytes_in_place(&file)?, file)));
    usable.max_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes > 0).map(|(_, file)| file)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Metadata};
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::{DataDir, deletions::entries, verify};

    /// Of the slots of these tests.
    const SLOT: usize = 128 << 10;

    fn open(root: &Path) -> (DataDir, Objects) {
        let dir = DataDir::open(root).unwrap();
        let objects = Objects::open(&dir).unwrap();
        if objects.bucket("b").unwrap().is_none() {
            objects.create_bucket("b").unwrap();
        }
        (dir, objects)
    }

    fn files(objects: &Objects) -> Vec<Metadata> {
        let shards = entries(&objects.files).unwrap();
        shards.iter().flat_map(|shard| entries(shard).unwrap()).map(|path| fs::metadata(path).unwrap()).collect()
    }

    fn create(objects: &Objects) -> String {
        objects.create_upload("b", "k", &Attributes::default(), None).unwrap()
    }

    fn begin(objects: &Objects, upload: &str, number: u32, content: &[u8]) -> crate::ObjectWriter {
        let mut writer = objects.part_writer(upload, number, Some(content.len() as u64)).unwrap();
        content.chunks(50_000).for_each(|piece| writer.append(piece).unwrap());
        writer
    }

    fn send(objects: &Objects, upload: &str, number: u32, content: &[u8]) -> (u32, String) {
        let part =
            objects.commit_part(begin(objects, upload, number, content), upload, number, &BTreeMap::new()).unwrap();
        (number, part.etag)
    }

    fn complete(
        objects: &Objects,
        upload: &str,
        chosen: &[(u32, String)],
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        objects.complete_upload(upload, chosen, &BTreeMap::new(), condition)
    }

    fn content(objects: &Objects) -> Vec<u8> {
        objects.reader("b", "k").unwrap().read_all().unwrap()
    }

    /// Parts as they come, those that are chosen, and whether the object's file is one that parts
    /// were written to.
    type Case = (&'static [(u32, usize)], &'static [u32], bool);

    /// Small and odd ones have files of their own; what comes in order or out of it, first and
    /// again, ends as one file with the right bytes.
    #[test]
    fn parts_in_their_places_become_the_object_without_being_copied() {
        const BIG: usize = 2 * SLOT;
        const REST: usize = 100_000;
        let cases: &[Case] = &[
            (&[(1, SLOT), (2, SLOT), (3, REST)], &[1, 2, 3], true),
            (&[(3, REST), (2, SLOT), (1, SLOT)], &[1, 2, 3], true),
            (&[(2, SLOT / 2), (1, SLOT)], &[1, 2], true),
            (&[(1, SLOT), (2, SLOT), (3, 10)], &[1, 2, 3], true),
            (&[(1, SLOT), (2, SLOT), (2, SLOT), (1, SLOT)], &[1, 2], false),
            (&[(1, SLOT), (2, SLOT), (3, SLOT), (2, SLOT), (2, SLOT)], &[1, 2, 3], true),
            (&[(1, SLOT), (2, BIG), (3, SLOT)], &[1, 2, 3], true),
            (&[(1, SLOT), (2, REST), (3, SLOT)], &[1, 2, 3], false),
            (&[(1, SLOT), (2, SLOT), (3, SLOT)], &[1, 3], false),
            (&[(1, SLOT), (2, SLOT), (3, SLOT)], &[1, 2], false),
            (&[(1, SLOT), (2, SLOT), (4, BIG), (4, 7)], &[1, 2, 4], true),
            (&[(1, REST), (2, REST), (3, REST)], &[1, 2, 3], false),
            (&[(1, 10), (2, 0), (3, 20)], &[1, 2, 3], false),
            (&[(10_000, SLOT)], &[10_000], false),
        ];
        let temp = tempfile::tempdir().unwrap();
        for (sent, chosen, in_place) in cases {
            for reopened in [false, true] {
                let (mut dir, mut objects) = open(temp.path());
                let upload = create(&objects);
                let mut parts = BTreeMap::new();
                for (turn, &(number, size)) in (1..).zip(*sent) {
                    let bytes = vec![turn; size];
                    parts.insert(number, (send(&objects, &upload, number, &bytes), bytes));
                    if reopened {
                        drop((objects, dir));
                        (dir, objects) = open(temp.path());
                    }
                }
                assert_eq!(verify(temp.path(), &mut |_| {}).unwrap().damages, [], "{sent:?}");
                let before: BTreeSet<u64> = files(&objects).iter().map(Metadata::ino).collect();
                let (named, bytes): (Vec<_>, Vec<_>) = chosen.iter().map(|number| parts[number].clone()).unzip();
                let meta = complete(&objects, &upload, &named, &PutCondition::Always).unwrap();
                assert!(content(&objects) == bytes.concat(), "{sent:?}");
                let after = files(&objects);
                assert_eq!(after.len(), 1, "{sent:?}");
                assert_eq!((after[0].len(), after[0].mode() & 0o777), (meta.size, 0o666), "{sent:?}");
                assert_eq!(before.contains(&after[0].ino()), *in_place, "{sent:?}");
                assert_eq!(verify(temp.path(), &mut |_| {}).unwrap().damages, [], "{sent:?}");
                objects.delete("b", "k").unwrap();
                assert!(files(&objects).is_empty());
            }
        }
    }

    #[test]
    fn what_still_writes_a_part_never_writes_to_the_object() {
        let temp = tempfile::tempdir().unwrap();
        let (_dir, objects) = open(temp.path());
        let upload = create(&objects);
        let first = send(&objects, &upload, 1, &[1; SLOT]);
        // The client has given this one up and sends the part again.
        let mut late = objects.part_writer(&upload, 2, Some(SLOT as u64)).unwrap();
        late.append(&[9; 100_000]).unwrap();
        let second = send(&objects, &upload, 2, &[2; SLOT]);
        complete(&objects, &upload, &[first, second], &PutCondition::Always).unwrap();
        late.append(&[9; 10]).unwrap();
        let error = objects.commit_part(late, &upload, 2, &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, StoreError::NoSuchUpload(_)), "{error}");
        assert!(content(&objects) == [[1; SLOT], [2; SLOT]].concat());
        assert_eq!(files(&objects).len(), 1);
    }

    #[test]
    fn a_part_is_not_longer_than_its_slot() {
        let temp = tempfile::tempdir().unwrap();
        let (_dir, objects) = open(temp.path());
        let upload = create(&objects);
        let second = send(&objects, &upload, 2, &[2; SLOT]);
        let mut first = begin(&objects, &upload, 1, &[9; SLOT]);
        assert!(first.append(&[9]).is_err());
        drop(first);
        let first = send(&objects, &upload, 1, &[0; SLOT]);
        complete(&objects, &upload, &[first, second], &PutCondition::Always).unwrap();
        assert!(content(&objects) == [[0; SLOT], [2; SLOT]].concat());
    }

    #[test]
    fn what_was_not_acknowledged_gives_its_space_back() {
        let temp = tempfile::tempdir().unwrap();
        let room = |objects: &Objects| files(objects).iter().map(|file| file.blocks() * 512).sum::<u64>();
        let slot = SLOT as u64;
        let (dir, objects) = open(temp.path());
        let upload = create(&objects);
        let dropped = begin(&objects, &upload, 1, &[1; SLOT]);
        assert_eq!(files(&objects).len(), 1);
        drop(dropped);
        assert_eq!(files(&objects).len(), 0, "nobody has acknowledged anything");
        let second = send(&objects, &upload, 2, &[2; SLOT]);
        drop(begin(&objects, &upload, 1, &[1; SLOT]));
        assert!((slot..2 * slot).contains(&room(&objects)), "{}", room(&objects));
        // A crash leaves what it finds.
        for number in [1, 3, 4] {
            std::mem::forget(begin(&objects, &upload, number, &[9; SLOT]));
        }
        assert!(room(&objects) >= 3 * slot, "{}", room(&objects));
        drop((objects, dir));
        let (_dir, objects) = open(temp.path());
        assert!((slot..2 * slot).contains(&room(&objects)), "{}", room(&objects));
        let zeros = [1, 3].map(|number| send(&objects, &upload, number, &[0; SLOT]));
        let [first, third] = zeros;
        complete(&objects, &upload, &[first, second, third], &PutCondition::Always).unwrap();
        assert!(content(&objects) == [[0; SLOT], [2; SLOT], [0; SLOT]].concat());

        let upload = create(&objects);
        let kept = files(&objects).len();
        send(&objects, &upload, 1, &[1; SLOT]);
        let writing = begin(&objects, &upload, 2, &[1; SLOT]);
        objects.abort_upload(&upload).unwrap();
        assert_eq!(files(&objects).len(), kept);
        let late = begin(&objects, &upload, 3, &[1; SLOT]);
        for (number, writer) in [(2, writing), (3, late)] {
            assert!(matches!(
                objects.commit_part(writer, &upload, number, &BTreeMap::new()),
                Err(StoreError::NoSuchUpload(_))
            ));
        }
        assert_eq!(files(&objects).len(), kept);
    }

    /// Any history of one upload ends with the parts that were acknowledged last.
    #[test]
    fn any_history_ends_with_the_parts_that_were_acknowledged_last() {
        let temp = tempfile::tempdir().unwrap();
        for seed in 1..=60_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut draw = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                usize::try_from(state % below as u64).unwrap()
            };
            let (mut dir, mut objects) = open(temp.path());
            let upload = create(&objects);
            let mut parts: BTreeMap<u32, ((u32, String), Vec<u8>)> = BTreeMap::new();
            let mut writing = Vec::new();
            let (mut turn, most) = (0, 2 + draw(6));
            loop {
                turn += 1;
                let number = u32::try_from(1 + draw(4)).unwrap();
                let size = if draw(4) == 0 { [SLOT / 2, 10, 3 * SLOT / 2, 70_001][draw(4)] } else { SLOT };
                let mut bytes = vec![if draw(3) == 0 { 0 } else { turn }; size];
                bytes[0] = turn;
                match draw(8) {
                    0 => drop(begin(&objects, &upload, number, &bytes)),
                    1 => writing.push((number, begin(&objects, &upload, number, &bytes), bytes)),
                    2 if !writing.is_empty() => {
                        let (number, writer, bytes) = writing.swap_remove(draw(writing.len()));
                        let part = objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap();
                        parts.insert(number, ((number, part.etag), bytes));
                    }
                    3 => {
                        writing.drain(..).for_each(|(_, writer, _)| std::mem::forget(writer));
                        drop((objects, dir));
                        (dir, objects) = open(temp.path());
                    }
                    4 => {
                        let named: Vec<_> = parts.values().map(|(named, _)| named.clone()).collect();
                        let condition = PutCondition::Matches("none".to_owned());
                        let failed = complete(&objects, &upload, &named, &condition).map(|meta| meta.size);
                        assert!(
                            named.is_empty() || matches!(failed, Err(StoreError::NoSuchKey { .. })),
                            "seed {seed}: {failed:?}"
                        );
                    }
                    _ => drop(parts.insert(number, (send(&objects, &upload, number, &bytes), bytes))),
                }
                if usize::from(turn) > most && !parts.is_empty() {
                    break;
                }
            }
            let (named, bytes): (Vec<_>, Vec<_>) = parts.into_values().unzip();
            complete(&objects, &upload, &named, &PutCondition::Always).unwrap();
            for (number, mut writer, _) in writing {
                let _ = writer.append(&[7; 10]);
                assert!(objects.commit_part(writer, &upload, number, &BTreeMap::new()).is_err());
            }
            assert!(content(&objects) == bytes.concat(), "seed {seed}");
            assert_eq!(files(&objects).len(), 1, "seed {seed}");
            assert_eq!(verify(temp.path(), &mut |_| {}).unwrap().damages, [], "seed {seed}");
            objects.delete("b", "k").unwrap();
        }
    }

    /// One number at a time from many, with completions between: what an acknowledged ETag names is
    /// what the object has.
    #[test]
    fn one_number_from_many_at_once_is_whole() {
        let temp = tempfile::tempdir().unwrap();
        let (_dir, objects) = open(temp.path());
        for _ in 0..10 {
            let upload = create(&objects);
            let by_etag = std::sync::Mutex::new(BTreeMap::new());
            std::thread::scope(|scope| {
                for sender in 0..6_u8 {
                    let (objects, upload, by_etag) = (&objects, &upload, &by_etag);
                    scope.spawn(move || {
                        for number in [1, 2] {
                            let bytes = vec![10 * sender + number; SLOT];
                            let (_, etag) = send(objects, upload, u32::from(number), &bytes);
                            by_etag.lock().unwrap().insert(etag, bytes);
                        }
                    });
                }
                scope.spawn(|| {
                    for _ in 0..20 {
                        let named: Vec<_> =
                            objects.parts(&upload).unwrap().into_iter().map(|part| (part.number, part.etag)).collect();
                        assert!(
                            complete(&objects, &upload, &named, &PutCondition::Matches("none".to_owned())).is_err()
                                || named.is_empty()
                        );
                    }
                });
            });
            let named: Vec<_> =
                objects.parts(&upload).unwrap().into_iter().map(|part| (part.number, part.etag)).collect();
            let by_etag = by_etag.into_inner().unwrap();
            complete(&objects, &upload, &named, &PutCondition::Always).unwrap();
            assert!(content(&objects) == named.iter().flat_map(|(_, etag)| by_etag[etag].clone()).collect::<Vec<_>>());
            assert_eq!(files(&objects).len(), 1);
        }
    }
}
