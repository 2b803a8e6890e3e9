//! What the hosts of a job leave behind, made into what the client asked for.
//!
//! Each host sent gzip members holding tar entries without the end-of-archive blocks. Joined, with
//! one more member that holds those blocks, they are a `.tar.gz` (RFC 1952 section 2.2: members may
//! follow each other). Nothing is compressed again. The hosts are joined from the last to the
//! first, so that where two have the same path, unpacking leaves the first host's.

use shoal_plane::Host;
use std::{
    fmt::Display,
    io::{self, Read, Write},
    path::Path,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use shoal_encryption::KeyError;
use shoal_link::Artifact;
use shoal_store::{Attributes, ForeignFault, ObjectWriter, Objects, PutCondition, StoreError};
use shoal_wire::{Output, OutputCompression, arn};

use crate::parts::{self, PartsReader};

/// Two zero blocks end an archive.
const END_OF_ARCHIVE: [u8; 1024] = [0; 1024];

/// Artifacts could not be stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArtifactError {
    #[error("could not store {uri}")]
    Store {
        uri: String,
        #[source]
        source: StoreError,
    },
    #[error("could not find out whether {uri} is there")]
    Find {
        uri: String,
        #[source]
        source: StoreError,
    },
    #[error("could not read the artifacts of {host}")]
    Read {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("could not write {uri}")]
    Write {
        uri: String,
        #[source]
        source: io::Error,
    },
}

impl ArtifactError {
    /// Whether the key cannot be had now: the same may succeed later. One that is not declared (any
    /// more) the owner may declare (again); earlier servers accepted the names of others.
    pub(crate) fn is_without_key(&self) -> bool {
        let is_missing = |error: &KeyError| matches!(error, KeyError::Unavailable(_) | KeyError::Unknown(_));
        matches!(self.of_store(), Some(StoreError::Key(error)) if is_missing(error))
    }

    /// Whether the bucket is elsewhere, and does not answer or take it now: the same may succeed
    /// later. Keys expire and are renewed, clocks are set, and its owner may create the bucket.
    pub(crate) fn is_of_bucket_elsewhere(&self) -> bool {
        match self.of_store() {
            Some(StoreError::Foreign(error)) => match error.fault {
                ForeignFault::Away | ForeignFault::Refused | ForeignFault::NoBucket | ForeignFault::Rejected => true,
                ForeignFault::ReadOnly | ForeignFault::Unsupported => false,
            },
            error => error.is_some_and(StoreError::is_away),
        }
    }

    fn of_store(&self) -> Option<&StoreError> {
        match self {
            Self::Store { source, .. } | Self::Find { source, .. } => Some(source),
            Self::Read { .. } | Self::Write { .. } => None,
        }
    }

    /// Whether the disk is full: the same may succeed later.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Store { source, .. } | Self::Find { source, .. } => matches!(source, StoreError::Full(_)),
            Self::Write { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Read { .. } => false,
        }
    }
}

/// Where a job's model artifact is, as Describe says it.
pub(crate) fn model_uri(output: &Output, job: &str) -> String {
    let file = match output.compression {
        OutputCompression::Gzip => "model.tar.gz",
        OutputCompression::None => "model/",
    };
    arn::output(&output.s3_output_path, job, file).to_string()
}

/// Stores the model artifact of these hosts (ascending), and the other output if there is any.
/// Repeated, it stores the same again.
///
/// # Errors
/// The S3 bucket is gone, the disk is full, the key cannot be had, or the parts cannot be read.
pub(crate) fn store(
    objects: &Objects,
    run_dir: &Path,
    hosts: &[Host],
    output: &Output,
    job: &str,
) -> Result<(), ArtifactError> {
    for (artifact, name) in [(Artifact::Model, "model"), (Artifact::Output, "output")] {
        let sent: Vec<Host> =
            hosts.iter().rev().copied().filter(|host| parts::path(run_dir, *host, artifact).exists()).collect();
        if sent.is_empty() && artifact == Artifact::Output {
            continue;
        }
        let target =
            Target { objects, bucket: &output.s3_output_path.bucket, kms_key_id: output.kms_key_id.as_deref() };
        let key = |file: String| arn::output(&output.s3_output_path, job, &file).prefix;
        match output.compression {
            OutputCompression::Gzip => target.join(run_dir, &sent, artifact, &key(format!("{name}.tar.gz")))?,
            OutputCompression::None => target.unpack(run_dir, &sent, artifact, &key(name.to_owned()))?,
        }
    }
    Ok(())
}

/// Whether the job has a model artifact by now.
///
/// # Errors
/// It is not known: one may be there, and must not be written over.
pub(crate) fn has_model(objects: &Objects, output: &Output, job: &str) -> Result<bool, ArtifactError> {
    let place = arn::output(&output.s3_output_path, job, "model.tar.gz");
    let found = objects.get(&place.bucket, &place.prefix);
    found.map(|found| found.is_some()).map_err(|source| ArtifactError::Find { uri: place.to_string(), source })
}

/// Bytes that these hosts have sent: what storing them takes, or less where they are stored
/// unpacked.
pub(crate) fn sent_bytes(run_dir: &Path, hosts: &[Host]) -> u64 {
    let paths = hosts
        .iter()
        .flat_map(|host| [Artifact::Model, Artifact::Output].map(|artifact| parts::path(run_dir, *host, artifact)));
    paths.map(|path| path.metadata().map_or(0, |found| found.len())).sum()
}

/// A `.tar.gz` without entries: the end of every one.
pub(crate) fn empty_archive() -> Vec<u8> {
    let mut end = GzEncoder::new(Vec::new(), Compression::fast());
    end.write_all(&END_OF_ARCHIVE).and_then(|()| end.finish()).expect("a vector takes whatever is written")
}

struct Target<'a> {
    objects: &'a Objects,
    bucket: &'a str,
    /// The key that the job names.
    kms_key_id: Option<&'a str>,
}

impl Target<'_> {
    fn uri(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.bucket)
    }

    fn store_error(&self, key: &str) -> impl FnOnce(StoreError) -> ArtifactError {
        let uri = self.uri(key);
        move |source| ArtifactError::Store { uri, source }
    }

    fn write_error(&self, key: &str) -> impl FnOnce(io::Error) -> ArtifactError {
        let uri = self.uri(key);
        move |source| ArtifactError::Write { uri, source }
    }

    fn writer(&self, key: &str) -> Result<ObjectWriter, ArtifactError> {
        let sealed = || {
            let kms = self.kms_key_id.map(|id| self.objects.keys().find(id)).transpose()?;
            self.objects.seal(self.objects.writer_to_the_last()?, self.bucket, kms)
        };
        sealed().map_err(self.store_error(key))
    }

    fn commit(&self, writer: ObjectWriter, key: &str, attributes: &Attributes) -> Result<(), ArtifactError> {
        self.objects
            .commit(writer, self.bucket, key, attributes, &PutCondition::Always)
            .map(drop)
            .map_err(self.store_error(key))
    }

    fn join(&self, run_dir: &Path, hosts: &[Host], artifact: Artifact, key: &str) -> Result<(), ArtifactError> {
        let mut writer = self.writer(key)?;
        for host in hosts {
            let mut parts = PartsReader::open(&parts::path(run_dir, *host, artifact)).map_err(read_error(host))?;
            io::copy(&mut parts, &mut writer).map_err(self.write_error(key))?;
        }
        writer.write_all(&empty_archive()).map_err(self.write_error(key))?;
        let attributes = Attributes { content_type: Some("application/x-tar".to_owned()), ..Attributes::default() };
        self.commit(writer, key, &attributes)
    }

    fn unpack(&self, run_dir: &Path, hosts: &[Host], artifact: Artifact, prefix: &str) -> Result<(), ArtifactError> {
        for host in hosts {
            let parts = PartsReader::open(&parts::path(run_dir, *host, artifact)).map_err(read_error(host))?;
            // The archive's end is not in the parts; a tar reader wants it.
            let mut archive = tar::Archive::new(MultiGzDecoder::new(parts).chain(&END_OF_ARCHIVE[..]));
            for entry in archive.entries().map_err(read_error(host))? {
                let mut entry = entry.map_err(read_error(host))?;
                let kind = entry.header().entry_type();
                if !kind.is_file() && !kind.is_gnu_sparse() {
                    continue;
                }
                let path = entry.path().map_err(read_error(host))?.to_string_lossy().into_owned();
                let key = format!("{prefix}/{}", path.trim_start_matches("./"));
                let mut writer = self.writer(&key)?;
                io::copy(&mut entry, &mut writer).map_err(self.write_error(&key))?;
                self.commit(writer, &key, &Attributes::default())?;
            }
        }
        Ok(())
    }
}

fn read_error(host: impl Display) -> impl FnOnce(io::Error) -> ArtifactError {
    let host = host.to_string();
    move |source| ArtifactError::Read { host, source }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shoal_encryption::{KeyRing, KeySource};
    use shoal_store::DataDir;

    use super::*;
    use crate::parts::PartsWriter;

    /// What an agent sends: gzip members with tar entries and no end of archive.
    fn part(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, path, content.as_bytes()).unwrap();
        }
        let whole = archive.into_inner().unwrap();
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(&whole[..whole.len() - END_OF_ARCHIVE.len()]).unwrap();
        member.finish().unwrap()
    }

    fn send(run_dir: &Path, host: Host, artifact: Artifact, bytes: &[u8]) {
        let mut writer = PartsWriter::open(&parts::path(run_dir, host, artifact), 0).unwrap();
        for (number, chunk) in bytes.chunks(50).enumerate() {
            writer.append(number as u64 + 1, chunk).unwrap();
        }
    }

    fn unpacked(objects: &Objects, key: &str) -> BTreeMap<String, String> {
        let (_, file) = objects.read("bkt", key).unwrap();
        let mut archive = tar::Archive::new(MultiGzDecoder::new(file));
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            files.insert(entry.path().unwrap().to_string_lossy().into_owned(), content);
        }
        files
    }

    /// The objects of a new data directory, which has a bucket.
    fn with_bucket() -> (tempfile::TempDir, Objects) {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::open(&temp.path().join("data")).unwrap()).unwrap();
        objects.create_bucket("bkt").unwrap();
        (temp, objects)
    }

    #[test]
    fn hosts_are_joined_and_the_first_wins() {
        let (temp, objects) = with_bucket();
        let run = temp.path();
        send(run, Host(1), Artifact::Model, &part(&[("model", "first"), ("only-1", "1")]));
        send(run, Host(2), Artifact::Model, &part(&[("model", "second"), ("only-2", "2")]));
        send(run, Host(3), Artifact::Model, b"half a gzip member, from a host that was lost");
        send(run, Host(2), Artifact::Output, &part(&[("log", "text")]));
        let output =
            |compression| Output { s3_output_path: "s3://bkt/out/".parse().unwrap(), kms_key_id: None, compression };
        let expected = BTreeMap::from(
            [("model", "first"), ("only-1", "1"), ("only-2", "2")].map(|(a, b)| (a.to_owned(), b.to_owned())),
        );

        // Each part has a header.
        assert!(
            (part(&[("model", "second"), ("only-2", "2")]).len() as u64..400).contains(&sent_bytes(run, &[Host(2)]))
        );
        assert_eq!(sent_bytes(run, &[Host(4)]), 0);
        let gzip = output(OutputCompression::Gzip);
        // Twice, as after a crash between storing and telling.
        for _ in 0..2 {
            store(&objects, run, &[Host(1), Host(2)], &gzip, "job").unwrap();
        }
        assert_eq!(model_uri(&gzip, "job"), "s3://bkt/out/job/output/model.tar.gz");
        assert_eq!(unpacked(&objects, "out/job/output/model.tar.gz"), expected);
        assert_eq!(unpacked(&objects, "out/job/output/output.tar.gz").len(), 1);

        let none = output(OutputCompression::None);
        store(&objects, run, &[Host(1), Host(2)], &none, "plain").unwrap();
        assert_eq!(model_uri(&none, "plain"), "s3://bkt/out/plain/output/model/");
        for (path, content) in expected {
            let (_, mut file) = objects.read("bkt", &format!("out/plain/output/model/{path}")).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, content, "{path}");
        }
        objects.delete_bucket("bkt").unwrap_err();
        let error =
            store(&objects, run, &[Host(1)], &Output { s3_output_path: "s3://gone/x".parse().unwrap(), ..none }, "job")
                .unwrap_err();
        assert_eq!(error.to_string(), "could not store s3://gone/x/job/output/model/model");
    }

    #[test]
    fn a_key_that_is_not_there_delays_and_is_used_when_it_is() {
        let (temp, objects) = with_bucket();
        let output = Output {
            s3_output_path: "s3://bkt".parse().unwrap(),
            kms_key_id: Some("alias/team".to_owned()),
            compression: OutputCompression::Gzip,
        };
        let error = store(&objects, temp.path(), &[Host(1)], &output, "job").unwrap_err();
        assert!(error.is_without_key(), "{error}");
        assert!(!has_model(&objects, &output, "job").unwrap());
        let sources = [("team".to_owned(), KeySource::Command(vec!["cat".to_owned(), "/dev/stdin".to_owned()]))].into();
        let unreachable = KeyRing::open(&sources, "us-east-1", "123456789012").unwrap();
        let objects = objects.with_keys(unreachable.into());
        assert!(store(&objects, temp.path(), &[Host(1)], &output, "job").unwrap_err().is_without_key());
        let sources = [("team".to_owned(), KeySource::Command(["sh", "-c", "cat"].map(str::to_owned).into()))].into();
        let objects = objects.with_keys(KeyRing::open(&sources, "us-east-1", "123456789012").unwrap().into());
        store(&objects, temp.path(), &[Host(1)], &output, "job").unwrap();
        let meta = objects.get("bkt", "job/output/model.tar.gz").unwrap().unwrap();
        assert_eq!(meta.attributes.encryption.unwrap().kms_key(), Some("team"));
    }

    #[test]
    fn a_model_artifact_is_there_even_when_nothing_was_written() {
        let (temp, objects) = with_bucket();
        let output = Output {
            s3_output_path: "s3://bkt".parse().unwrap(),
            kms_key_id: None,
            compression: OutputCompression::Gzip,
        };
        store(&objects, temp.path(), &[Host(1)], &output, "job").unwrap();
        assert_eq!(unpacked(&objects, "job/output/model.tar.gz").len(), 0);
        assert_eq!(objects.get("bkt", "job/output/output.tar.gz").unwrap(), None);
    }
}
