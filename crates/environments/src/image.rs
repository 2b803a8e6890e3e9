//! Names of images, and patterns that they fit.

/// Whether `image` fits a pattern of the table: as it stands, or without the registry of
/// SageMaker's images; without its digest; without its tag if the pattern has none.
pub(crate) fn fits(pattern: &str, image: &str) -> bool {
    let image = image.split('@').next().unwrap_or(image);
    [Some(image), without_registry(image)].into_iter().flatten().any(|name| {
        let name = if tag_of(pattern).is_none() {
            &name[..name.len() - tag_of(name).map_or(0, |tag| tag.len() + 1)]
        } else {
            name
        };
        matches(pattern.as_bytes(), name.as_bytes())
    })
}

/// What stands behind the colon of an image's last part; a colon before that is of the registry's
/// port.
pub(crate) fn tag_of(image: &str) -> Option<&str> {
    image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag)
}

/// The version that a tag begins with: `2.0.1` of `2.0.1-cpu-py310`, `1.2` of `1.2-1`.
pub(crate) fn version_of(tag: &str) -> Option<&str> {
    let version = tag.split('-').next()?;
    let is_version = version.contains('.')
        && version.split('.').all(|part| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit()));
    is_version.then_some(version)
}

/// `ACCOUNT.dkr.ecr.REGION.amazonaws.com/` and the same of other partitions is taken off.
fn without_registry(image: &str) -> Option<&str> {
    let (registry, rest) = image.split_once('/')?;
    let (account, host) = registry.split_once(".dkr.ecr")?;
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    (is_account && host.starts_with(['.', '-'])).then_some(rest)
}

/// `*` stands for any characters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| matches(rest, &text[from..])),
        Some((byte, rest)) => text.split_first().is_some_and(|(first, text)| first == byte && matches(rest, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_in_every_form() {
        for (pattern, image, expected) in [
            ("pytorch-training", "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-cpu-py310", true),
            (
                "pytorch-training",
                "763104351884.dkr.ecr-fips.us-gov-west-1.amazonaws.com/pytorch-training:2.8.0@sha256:0f",
                true,
            ),
            ("pytorch-training", "pytorch-training", true),
            ("pytorch-training", "pytorch-training-neuronx:2.1", false),
            ("pytorch-training", "docker.io/me/pytorch-training:2.0", false),
            ("pytorch-training", "me.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0", false),
            (
                "sagemaker-scikit-learn:1.2*",
                "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3",
                true,
            ),
            ("sagemaker-scikit-learn:1.2*", "sagemaker-scikit-learn:1.4-2", false),
            ("sagemaker-scikit-learn:1.2*", "sagemaker-scikit-learn", false),
            ("registry:5000/mine", "registry:5000/mine:7", true),
            ("registry:5000/mine:7", "registry:5000/mine:7", true),
            ("*/team-*:*-cpu", "host/team-a:1-cpu", true),
        ] {
            assert_eq!(fits(pattern, image), expected, "{pattern} and {image}");
        }
    }

    #[test]
    fn tags_begin_with_versions() {
        for (tag, expected) in
            [("2.0.1-cpu-py310", Some("2.0.1")), ("1.2-1", Some("1.2")), ("latest", None), ("1", None), ("1.x-2", None)]
        {
            assert_eq!(version_of(tag), expected, "{tag}");
        }
    }
}
