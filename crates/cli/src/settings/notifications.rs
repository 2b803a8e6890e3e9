//! How notifications are delivered.

use std::collections::BTreeMap;

use anyhow::Result;
use shoal_server::{MailServer, NotificationOptions};

use super::{Origin, Typed, lists, wrong};

pub(super) fn notifications(typed: &Typed) -> Result<NotificationOptions> {
    let given = |name: &str| Some(typed.value(name)).filter(|value| *value != "none").map(str::to_owned);
    let mail = match (given("notifications_smtp"), given("notifications_from")) {
        (Some(url), Some(from)) => {
            let password_file = given("notifications_smtp_password_file").is_some();
            let password_file = password_file.then(|| typed.path("notifications_smtp_password_file")).transpose()?;
            Some(MailServer { url, password_file, from })
        }
        (Some(_), None) => {
            return Err(wrong(typed, "notifications_from", "an address, which notifications_smtp needs"));
        }
        (None, _) => {
            let needing = ["notifications_from", "notifications_smtp_password_file"];
            match needing.into_iter().find(|name| *typed.origin(name) != Origin::Default) {
                Some(name) => return Err(wrong(typed, name, "of use without notifications_smtp")),
                None => None,
            }
        }
    };
    let options = NotificationOptions {
        mail,
        commands: commands(typed)?,
        url: given("notifications_url"),
        job_state_changes: given("notifications_job_state_changes"),
    };
    options.check().map_err(|(name, wanted)| wrong(typed, name, &wanted))?;
    Ok(options)
}

/// Names of commands, with their programs and arguments.
fn commands(typed: &Typed) -> Result<BTreeMap<String, Vec<String>>> {
    const NAME: &str = "notifications_commands";
    let mut commands = BTreeMap::new();
    for (name, command) in lists::pairs(typed.value(NAME)) {
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let is_right = !name.is_empty() && name.chars().all(is_plain) && !command.is_empty();
        if !is_right || commands.insert(name.to_owned(), command).is_some() {
            return Err(wrong(typed, NAME, "a list of different names with commands, pager=/usr/local/bin/page"));
        }
    }
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(file: &str) -> Result<NotificationOptions> {
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        notifications(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn a_table_of_the_file_has_all_settings() {
        let options = read(
            "[notifications]\nsmtp = \"smtp://ann@mail.x.org:587?tls=required\"\nsmtp_password_file = \"smtp.txt\"\nfrom = \"shoal@x.org\"\n\
             commands = [\"pager=/bin/page --urgent\", \"l og=/bin/log\"]\njob_state_changes = \"arn:aws:sns:r:1:t\"\n",
        );
        assert!(options.is_err(), "a name has no space");
        let options = read(
            "[notifications]\nsmtp = \"smtp://ann@mail.x.org:587?tls=required\"\nsmtp_password_file = \"smtp.txt\"\nfrom = \"shoal@x.org\"\n\
             commands = [\"pager=/bin/page --urgent\", \"log=/bin/log\"]\njob_state_changes = \"arn:aws:sns:r:1:t\"\n",
        )
        .unwrap();
        let mail = options.mail.unwrap();
        assert_eq!(mail.password_file.as_deref(), Some(Path::new("/data/smtp.txt")));
        assert_eq!(options.commands["pager"], ["/bin/page", "--urgent"]);
        assert_eq!(options.job_state_changes.as_deref(), Some("arn:aws:sns:r:1:t"));
        let nothing = read("").unwrap();
        assert!(nothing.mail.is_none() && nothing.commands.is_empty() && nothing.url.is_none());
    }

    #[test]
    fn mistakes_are_found_before_the_first_notification() {
        for (file, hint) in [
            ("smtp = \"smtp://x\"", "notifications_from"),
            ("from = \"a@b.org\"", "of use without notifications_smtp"),
            ("smtp = \"mail.x.org\"\nfrom = \"a@b.org\"", "an SMTP server's URL"),
            ("smtp = \"smtp://x\"\nfrom = \"me\"", "an address such as"),
            ("commands = \"pager\"", "a list of different names"),
            ("commands = \"a=b,a=c\"", "a list of different names"),
            ("url = \"shoal.x.org\"", "a URL such as"),
        ] {
            let message = read(&format!("[notifications]\n{file}\n")).unwrap_err().to_string();
            assert!(message.contains(hint), "{file}: {message}");
        }
    }
}
