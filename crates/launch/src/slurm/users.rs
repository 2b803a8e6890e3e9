//! As whom jobs are submitted, where each creator's are those of a user of the cluster.

use std::collections::BTreeMap;

/// Stands for a user of the cluster in words of the settings.
pub(super) const USER: &str = "{user}";

/// Whose jobs are whose on the cluster. Those without a creator are the caller's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmUsers {
    /// A command that runs what follows it as the user `{user}`: `sudo -n -u {user} --`. Empty: the
    /// caller runs all commands, and slurmrestd gets a token of each user.
    pub submit_as: Vec<String>,
    /// The users of creators who have another name on the cluster.
    pub names: BTreeMap<String, String>,
}

impl SlurmUsers {
    /// The user of a creator.
    ///
    /// # Errors
    /// The creator's own name is none that is taken for a user's; what to do.
    pub(super) fn of(&self, creator: &str) -> Result<String, String> {
        match self.names.get(creator) {
            Some(user) => Ok(user.clone()),
            // Else a key with the name `root` would run jobs as root.
            None if Self::is_name(creator) && creator != "root" => Ok(creator.to_owned()),
            None => Err(format!("{creator:?} is not taken for the name of a user of the cluster; name one in `users`")),
        }
    }

    /// Whether this can be the name of a user, and is no number or option to a command.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_other = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
        name.len() <= 64 && name.bytes().next().is_some_and(is_first) && name.bytes().all(is_other)
    }

    /// Whether words of the settings name the user.
    #[must_use]
    pub fn is_in(words: &[String]) -> bool {
        words.iter().any(|word| word.contains(USER))
    }
}

/// Words of the settings for a user.
pub(super) fn words_for(words: &[String], user: &str) -> Vec<String> {
    words.iter().map(|word| word.replace(USER, user)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creator_has_a_user_by_name_or_by_the_settings() {
        let names = BTreeMap::from([("anna".to_owned(), "asmith".to_owned()), ("ops".to_owned(), "root".to_owned())]);
        let users = SlurmUsers { submit_as: Vec::new(), names };
        let of = |creator| users.of(creator).ok();
        assert_eq!(of("anna").as_deref(), Some("asmith"));
        assert_eq!(of("ben").as_deref(), Some("ben"));
        assert_eq!(of("ops").as_deref(), Some("root"), "the settings name it");
        for creator in ["root", "0", "1000", "-u", "a b", "x+y", "x,y", "", "a/b", "{user}"] {
            assert_eq!(of(creator), None, "{creator}");
        }
        assert_eq!(
            users.of("x+y"),
            Err("\"x+y\" is not taken for the name of a user of the cluster; name one in `users`".to_owned())
        );
    }

    #[test]
    fn words_have_the_user_at_their_places() {
        let words = ["sudo", "-n", "-u", "{user}", "--"].map(str::to_owned);
        assert!(SlurmUsers::is_in(&words) && !SlurmUsers::is_in(&words[..3]));
        assert_eq!(words_for(&words, "anna"), ["sudo", "-n", "-u", "anna", "--"]);
        assert_eq!(words_for(&["username={user}".to_owned()], "anna"), ["username=anna"]);
    }
}
