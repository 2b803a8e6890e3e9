//! Keys of AWS's configuration files. The environment, web identities, containers and instances are
//! object_store's business; it does not read these files.

use std::env;
use std::fs;
use std::path::PathBuf;

/// What a profile has.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) access_key: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    /// Where keys would come from that are not in it, which is not done here.
    pub(crate) source: Option<&'static str>,
}

/// Members of profiles that are not followed.
const SOURCES: [&str; 4] = ["credential_process", "role_arn", "sso_session", "sso_start_url"];

/// The profile of this name, or else that of `AWS_PROFILE`, or `default`.
pub(crate) fn of_files(name: Option<&str>) -> Profile {
    let name = name.map(str::to_owned).or_else(|| env::var("AWS_PROFILE").ok()).unwrap_or("default".to_owned());
    let file = |variable: &str, default: &str| {
        let path = env::var_os(variable).map(PathBuf::from);
        let path = path.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(default)));
        path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
    };
    let mut profile = Profile::default();
    profile.read(&file("AWS_CONFIG_FILE", ".aws/config"), &[&format!("profile {name}"), &name]);
    profile.read(&file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), &[&name]);
    profile
}

impl Profile {
    fn read(&mut self, text: &str, sections: &[&str]) {
        let mut is_ours = false;
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
            if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                is_ours = sections.contains(&section.trim());
            } else if is_ours && let Some((key, value)) = line.split_once('=') {
                let member = match key.trim() {
                    "aws_access_key_id" => &mut self.access_key,
                    "aws_secret_access_key" => &mut self.secret_key,
                    "aws_session_token" => &mut self.token,
                    "region" => &mut self.region,
                    other => {
                        self.source = self.source.or(SOURCES.into_iter().find(|source| *source == other));
                        continue;
                    }
                };
                *member = Some(value.trim().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_in_both_files() {
        let mut profile = Profile::default();
        profile.read("[default]\nregion = x\n[profile p]\nregion=eu-1\noutput = json\n", &["profile p", "p"]);
        profile.read(
            "[other]\naws_access_key_id = no\n# [p]\n[p]\naws_access_key_id = AK\naws_secret_access_key=a=b\n",
            &["p"],
        );
        let expected = Profile {
            access_key: Some("AK".to_owned()),
            secret_key: Some("a=b".to_owned()),
            token: None,
            region: Some("eu-1".to_owned()),
            source: None,
        };
        assert_eq!(profile, expected);
    }

    #[test]
    fn what_is_not_followed_is_named() {
        let mut profile = Profile::default();
        profile.read("[p]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = q\n", &["p"]);
        assert_eq!(profile, Profile { source: Some("role_arn"), ..Profile::default() });
    }
}
