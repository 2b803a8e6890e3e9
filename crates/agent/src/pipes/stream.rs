//! What goes through the pipe of an epoch: samples in order, each entry decompressed and wrapped as
//! the channel asks.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use shoal_contract::{record_header, record_padding};
use shoal_link::{ManifestEntry, Pipe, order};

const READ_BYTES: usize = 256 << 10;

/// Opens an object of the channel.
pub(super) type Open<'a> = dyn Fn(&ManifestEntry) -> io::Result<Box<dyn Read>> + 'a;

/// Takes bytes of the stream; `false` ends it.
pub(super) type Sink<'a> = dyn FnMut(&[u8]) -> io::Result<bool> + 'a;

/// Why an epoch is not streamed to its end.
#[derive(Debug)]
pub(super) enum Broken {
    /// The sink takes no more.
    Sink(io::Error),
    /// The channel's data is not as requested, or cannot be read.
    Data(String),
}

/// Streams an epoch. Gives whether all of it was taken.
pub(super) fn epoch(
    entries: &[ManifestEntry],
    pipe: Pipe,
    epoch: u64,
    open: &Open<'_>,
    sink: &mut Sink<'_>,
) -> Result<bool, Broken> {
    let per_sample = pipe.entries_per_sample.max(1) as usize;
    for sample in order(entries.len() / per_sample, pipe.shuffle_seed, epoch, pipe.shard) {
        for entry in &entries[sample * per_sample..][..per_sample] {
            if !stream(entry, pipe, open, sink)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn stream(entry: &ManifestEntry, pipe: Pipe, open: &Open<'_>, sink: &mut Sink<'_>) -> Result<bool, Broken> {
    // Attributes of an augmented manifest are not compressed.
    let is_gzip = pipe.is_gzip && entry.text.is_none() && entry.size > 0;
    let content = || -> Result<Box<dyn Read + '_>, Broken> {
        let raw: Box<dyn Read + '_> = match &entry.text {
            Some(text) => Box::new(text.as_bytes()),
            None => open(entry).map_err(|error| unreadable(entry, &error))?,
        };
        Ok(if is_gzip { Box::new(MultiGzDecoder::new(raw)) } else { raw })
    };
    if !pipe.is_record_io {
        return copy(entry, &mut *content()?, is_gzip, sink);
    }
    // A record begins with its length, which is known of compressed data only after all of it.
    let length = match &entry.text {
        Some(text) => text.len() as u64,
        None if !is_gzip => entry.size,
        None => {
            let mut length = 0;
            copy(entry, &mut *content()?, is_gzip, &mut |bytes| {
                length += bytes.len() as u64;
                Ok(true)
            })?;
            length
        }
    };
    let header = record_header(length).ok_or_else(|| {
        Broken::Data(format!("{} has {length} bytes, which is more than a RecordIO record can have", name(entry)))
    })?;
    Ok(sink(&header).map_err(Broken::Sink)?
        && copy(entry, &mut *content()?, is_gzip, sink)?
        && sink(record_padding(length)).map_err(Broken::Sink)?)
}

fn copy(entry: &ManifestEntry, content: &mut dyn Read, is_gzip: bool, sink: &mut Sink<'_>) -> Result<bool, Broken> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(count) if !sink(&buffer[..count]).map_err(Broken::Sink)? => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_gzip => {
                return Err(Broken::Data(format!(
                    "{} is not gzip ({error}); set CompressionType to None, or compress it",
                    name(entry)
                )));
            }
            Err(error) => return Err(unreadable(entry, &error)),
        }
    }
}

fn unreadable(entry: &ManifestEntry, error: &io::Error) -> Broken {
    Broken::Data(format!("{} cannot be read: {error}", name(entry)))
}

fn name(entry: &ManifestEntry) -> &str {
    if entry.path.is_empty() { "an attribute" } else { &entry.path }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use shoal_link::Shard;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn object(path: &str, size: usize) -> ManifestEntry {
        ManifestEntry { path: path.to_owned(), id: path.to_owned(), size: size as u64, text: None }
    }

    fn text(text: &str) -> ManifestEntry {
        ManifestEntry { path: String::new(), id: String::new(), size: 0, text: Some(text.to_owned()) }
    }

    fn streamed(objects: &[(&str, Vec<u8>)], texts: &[(usize, &str)], pipe: Pipe, at: u64) -> Result<Vec<u8>, String> {
        let mut entries = Vec::from_iter(objects.iter().map(|(path, content)| object(path, content.len())));
        for (index, value) in texts {
            entries.insert(*index, text(value));
        }
        let contents: HashMap<String, Vec<u8>> =
            objects.iter().map(|(path, content)| ((*path).to_owned(), content.clone())).collect();
        let open = |entry: &ManifestEntry| Ok(Box::new(io::Cursor::new(contents[&entry.id].clone())) as Box<dyn Read>);
        let mut all = Vec::new();
        let taken = epoch(&entries, pipe, at, &open, &mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(true)
        });
        match taken {
            Ok(true) => Ok(all),
            Ok(false) => panic!("the sink takes all"),
            Err(Broken::Data(why)) => Err(why),
            Err(Broken::Sink(error)) => panic!("{error}"),
        }
    }

    const PLAIN: Pipe =
        Pipe { is_gzip: false, is_record_io: false, shuffle_seed: None, entries_per_sample: 1, shard: None };

    fn record(content: &[u8]) -> Vec<u8> {
        let length = content.len() as u64;
        [&record_header(length).unwrap()[..], content, record_padding(length)].concat()
    }

    #[test]
    fn objects_come_one_after_another() {
        let objects = [("a", b"1\n".to_vec()), ("b", Vec::new()), ("c", b"2".to_vec())];
        assert_eq!(streamed(&objects, &[], PLAIN, 0).unwrap(), b"1\n2");
        let wrapped = Pipe { is_record_io: true, ..PLAIN };
        assert_eq!(streamed(&objects, &[], wrapped, 0).unwrap(), [record(b"1\n"), record(b""), record(b"2")].concat());
    }

    #[test]
    fn compressed_objects_are_decompressed_and_wrapped_whole() {
        let long = b"0123456789".repeat(100_000);
        // Members of gzip one after another are one content.
        let objects = [("a", gzip(&long)), ("b", Vec::new()), ("c", [gzip(b"x"), gzip(b"y")].concat())];
        let compressed = Pipe { is_gzip: true, ..PLAIN };
        assert_eq!(streamed(&objects, &[], compressed, 0).unwrap(), [&long[..], b"xy"].concat());
        let wrapped = Pipe { is_record_io: true, ..compressed };
        assert_eq!(streamed(&objects, &[], wrapped, 0).unwrap(), [record(&long), record(b""), record(b"xy")].concat());
        for damaged in [b"plain text".to_vec(), gzip(&long)[..200].to_vec()] {
            let why = streamed(&[("a.gz", damaged)], &[], compressed, 0).unwrap_err();
            assert!(why.starts_with("a.gz is not gzip"), "{why}");
        }
    }

    #[test]
    fn attributes_of_a_line_stay_together() {
        let objects = [("a", b"A".to_vec()), ("b", b"B".to_vec()), ("c", b"C".to_vec())];
        let texts = [(1, "1"), (3, "2"), (5, "3")];
        let pipe = Pipe { entries_per_sample: 2, shuffle_seed: Some(1), ..PLAIN };
        let orders = Vec::from_iter((0..20).map(|at| streamed(&objects, &texts, pipe, at).unwrap()));
        for order in &orders {
            let mut samples = Vec::from_iter(order.chunks(2));
            samples.sort_unstable();
            assert_eq!(samples, [b"A1", b"B2", b"C3"]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]));
        // Attributes are not decompressed, though objects are.
        let gzipped = [("a", gzip(b"A"))];
        let pipe = Pipe { is_gzip: true, is_record_io: true, entries_per_sample: 2, ..PLAIN };
        assert_eq!(streamed(&gzipped, &[(1, "7")], pipe, 0).unwrap(), [record(b"A"), record(b"7")].concat());
    }

    #[test]
    fn shards_have_what_others_have_not() {
        let objects = ["a", "b", "c", "d", "e"].map(|name| (name, name.as_bytes().to_vec()));
        let of = |index, at| {
            let shard = Some(Shard { index, count: 2 });
            streamed(&objects, &[], Pipe { shuffle_seed: Some(4), shard, ..PLAIN }, at).unwrap()
        };
        for at in 0..3 {
            let mut all = [of(0, at), of(1, at)].concat();
            all.sort_unstable();
            assert_eq!(all, b"abcde");
        }
    }

    #[test]
    fn a_sink_that_takes_no_more_ends_the_stream() {
        let entries = [object("a", 1), object("b", 1)];
        let opened = std::cell::Cell::new(0);
        let open = |_: &ManifestEntry| {
            opened.set(opened.get() + 1);
            Ok(Box::new(&b"x"[..]) as Box<dyn Read>)
        };
        assert!(!epoch(&entries, PLAIN, 0, &open, &mut |_| Ok(false)).unwrap());
        assert_eq!(opened.get(), 1, "what is not read is not opened");
        let closed = epoch(&entries, PLAIN, 0, &open, &mut |_| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(matches!(closed, Err(Broken::Sink(error)) if error.kind() == io::ErrorKind::BrokenPipe));
        let lost = epoch(&entries, PLAIN, 0, &|_| Err(io::Error::other("lost")), &mut |_| Ok(true));
        assert!(matches!(lost, Err(Broken::Data(why)) if why == "a cannot be read: lost"));
    }
}
