//! What the hosts of a job leave behind, made into what the client asked for.
//!
//! Each host sent gzip members holding tar entries without the end-of-archive blocks. Joined, with one more member that holds
//! those blocks, they are a `.tar.gz` (RFC 1952 section 2.2: members may follow each other). Nothing is compressed again. The hosts are
//! joined from the last to the first, so that where two have the same path, unpacking leaves the first host's.

use std::{
    fmt::Display,
    io::{self, Read, Write},
    path::Path,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use shoal_link::Artifact;
use shoal_store::{Attributes, ObjectWriter, Objects, PutCondition, StoreError};
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

/// Where a job's model artifact is, as Describe says it.
pub(crate) fn model_uri(output: &Output, job: &str) -> String {
    let file = match output.compression {
        OutputCompression::Gzip => "model.tar.gz",
        OutputCompression::None => "model/",
    };
    arn::output(&output.s3_output_path, job, file).to_string()
}

/// Stores the model artifact of these hosts (ascending), and the other output if there is any. Repeated, it stores the same again.
///
/// # Errors
/// The S3 bucket is gone, the disk is full, or the parts cannot be read.
pub(crate) fn store(objects: &Objects, run_dir: &Path, hosts: &[u32], output: &Output, job: &str) -> Result<(), ArtifactError> {
    for (artifact, name) in [(Artifact::Model, "model"), (Artifact::Output, "output")] {
        let sent: Vec<u32> = hosts.iter().rev().copied().filter(|host| parts::path(run_dir, *host, artifact).exists()).collect();
        if sent.is_empty() && artifact == Artifact::Output {
            continue;
        }
        let target = Target { objects, bucket: &output.s3_output_path.bucket };
        let key = |file: String| arn::output(&output.s3_output_path, job, &file).prefix;
        match output.compression {
            OutputCompression::Gzip => target.join(run_dir, &sent, artifact, &key(format!("{name}.tar.gz")))?,
            OutputCompression::None => target.unpack(run_dir, &sent, artifact, &key(name.to_owned()))?,
        }
    }
    Ok(())
}

struct Target<'a> {
    objects: &'a Objects,
    bucket: &'a str,
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

    fn commit(&self, writer: ObjectWriter, key: &str, attributes: &Attributes) -> Result<(), ArtifactError> {
        self.objects.commit(writer, self.bucket, key, attributes, &PutCondition::Always).map(drop).map_err(self.store_error(key))
    }

    fn join(&self, run_dir: &Path, hosts: &[u32], artifact: Artifact, key: &str) -> Result<(), ArtifactError> {
        let mut writer = self.objects.writer().map_err(self.store_error(key))?;
        for host in hosts {
            let mut parts = PartsReader::open(&parts::path(run_dir, *host, artifact)).map_err(read_error(host))?;
            io::copy(&mut parts, &mut writer).map_err(self.write_error(key))?;
        }
        let mut end = GzEncoder::new(&mut writer, Compression::fast());
        end.write_all(&END_OF_ARCHIVE).and_then(|()| end.finish().map(drop)).map_err(self.write_error(key))?;
        let attributes = Attributes { content_type: Some("application/x-tar".to_owned()), ..Attributes::default() };
        self.commit(writer, key, &attributes)
    }

    fn unpack(&self, run_dir: &Path, hosts: &[u32], artifact: Artifact, prefix: &str) -> Result<(), ArtifactError> {
        for host in hosts {
            let parts = PartsReader::open(&parts::path(run_dir, *host, artifact)).map_err(read_error(host))?;
            // The archive's end is not in the parts; a tar reader wants it.
            let mut archive = tar::Archive::new(MultiGzDecoder::new(parts).chain(&END_OF_ARCHIVE[..]));
            for entry in archive.entries().map_err(read_error(host))? {
                let mut entry = entry.map_err(read_error(host))?;
                if !entry.header().entry_type().is_file() {
                    continue;
                }
                let path = entry.path().map_err(read_error(host))?.to_string_lossy().into_owned();
                let key = format!("{prefix}/{}", path.trim_start_matches("./"));
                let mut writer = self.objects.writer().map_err(self.store_error(&key))?;
                io::copy(&mut entry, &mut writer).map_err(self.write_error(&key))?;
                self.commit(writer, &key, &Attributes::default())?;
            }
        }
        Ok(())
    }
}

fn read_error(host: impl Display) -> impl FnOnce(io::Error) -> ArtifactError {
    let host = format!("algo-{host}");
    move |source| ArtifactError::Read { host, source }
}
