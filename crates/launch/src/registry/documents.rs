//! The documents of the OCI image specification (and Docker's, which they continue), as far as they
//! lead to what an image starts.

use serde::Deserialize;

/// The formats of manifests that are understood, of one platform and of several.
pub(super) const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// What a manifest leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    /// The image's configuration, by its digest.
    Image(String),
    /// The manifest of a platform, by its digest.
    Platform(String),
}

#[derive(Deserialize)]
struct Document {
    config: Option<Descriptor>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Configuration {
    config: Option<Run>,
}

#[derive(Deserialize)]
struct Run {
    #[serde(rename = "Entrypoint")]
    entrypoint: Option<Vec<String>>,
}

/// Reads a manifest; of several platforms the one for Linux and this architecture (`amd64`) counts,
/// else the first one for Linux: programs differ by it, but hardly their names.
///
/// # Errors
/// What is wrong with it.
pub(super) fn manifest(text: &[u8], architecture: &str) -> Result<Manifest, String> {
    let document: Document = serde_json::from_slice(text).map_err(|error| format!("its manifest is none: {error}"))?;
    if let Some(Descriptor { digest, .. }) = document.config {
        return Ok(Manifest::Image(digest));
    }
    let all = document.manifests.ok_or("its manifest is of an old format: push the image again")?;
    let is_for = |descriptor: &&Descriptor, wanted: Option<&str>| {
        let platform = descriptor.platform.as_ref();
        platform.is_some_and(|it| it.os == "linux" && wanted.is_none_or(|wanted| it.architecture == wanted))
    };
    let found = all.iter().find(|it| is_for(it, Some(architecture)));
    let found = found.or_else(|| all.iter().find(|it| is_for(it, None) || it.platform.is_none()));
    found.map(|it| Manifest::Platform(it.digest.clone())).ok_or_else(|| "it is for no Linux".to_owned())
}

/// ENTRYPOINT of an image's configuration; in the shell form it is `/bin/sh -c ..`.
///
/// # Errors
/// What is wrong with it.
pub(super) fn entrypoint(text: &[u8]) -> Result<Vec<String>, String> {
    let document: Configuration =
        serde_json::from_slice(text).map_err(|error| format!("its configuration is none: {error}"))?;
    Ok(document.config.and_then(|run| run.entrypoint).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_platforms_one_is_chosen() {
        let index = br#"{"manifests": [
            {"digest": "sha256:w", "platform": {"os": "windows", "architecture": "amd64"}},
            {"digest": "sha256:a", "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
            {"digest": "sha256:x", "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": "sha256:u", "platform": {"os": "unknown", "architecture": "unknown"}}]}"#;
        for (architecture, digest) in [("amd64", "sha256:x"), ("arm64", "sha256:a"), ("riscv64", "sha256:a")] {
            assert_eq!(manifest(index, architecture), Ok(Manifest::Platform(digest.to_owned())));
        }
        let unnamed = br#"{"manifests": [{"digest": "sha256:n"}]}"#;
        assert_eq!(manifest(unnamed, "amd64"), Ok(Manifest::Platform("sha256:n".to_owned())));
        let one = br#"{"schemaVersion": 2, "config": {"digest": "sha256:c"}, "layers": []}"#;
        assert_eq!(manifest(one, "amd64"), Ok(Manifest::Image("sha256:c".to_owned())));
        for (text, expected) in [
            (r#"{"manifests": []}"#, "no Linux"),
            (r#"{"schemaVersion": 1, "fsLayers": []}"#, "old format"),
            ("<html>", "is none"),
        ] {
            let problem = manifest(text.as_bytes(), "amd64").expect_err("it is wrong");
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn an_image_may_have_no_entrypoint() {
        let shell = r#"{"config": {"Entrypoint": ["/bin/sh", "-c", "python train.py"], "Cmd": ["x"]}, "rootfs": {}}"#;
        assert_eq!(entrypoint(shell.as_bytes()), Ok(["/bin/sh", "-c", "python train.py"].map(str::to_owned).to_vec()));
        for none in [r#"{"config": {"Cmd": ["bash"]}}"#, r#"{"config": {"Entrypoint": null}}"#, "{}"] {
            assert_eq!(entrypoint(none.as_bytes()), Ok(Vec::new()), "{none}");
        }
        assert!(entrypoint(b"[]").is_err());
    }
}
