//! What the owner configures of notifications.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use lettre::{SmtpTransport, transport::smtp::authentication::Credentials};

/// Settings of notifications, all decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationOptions {
    /// Sends mails; without it no topic can have subscribers by email.
    pub mail: Option<MailServer>,
    /// Commands that topics can have as subscribers, by their names: program and arguments.
    pub commands: BTreeMap<String, Vec<String>>,
    /// Where receivers of notifications find this server, `https://shoal.example.org:9777`; `None`
    /// is the address that it listens on.
    pub url: Option<String>,
    /// ARN of the topic that is sent changes of jobs' states.
    pub job_state_changes: Option<String>,
}

/// The owner's SMTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// `smtp://host:25`, `smtp://user@host:587?tls=required` or `smtps://user@host`.
    pub url: String,
    /// A file that has the user's password.
    pub password_file: Option<PathBuf>,
    /// Address of the sender.
    pub from: String,
}

impl NotificationOptions {
    /// What is wrong with them, and which setting has it: found at the start, not with the first
    /// notification.
    ///
    /// # Errors
    /// The setting's name and what it should be.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(mail) = &self.mail {
            if mail.from.parse::<lettre::Address>().is_err() {
                return Err(("notifications_from", "an address such as shoal@example.org".to_owned()));
            }
            mail.connection(None, Duration::ZERO).map_err(|why| {
                ("notifications_smtp", format!("an SMTP server's URL such as smtp://mail.example.org:25 ({why})"))
            })?;
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if self.url.as_ref().is_some_and(|url| !is_url(url) || url.ends_with('/')) {
            return Err(("notifications_url", "a URL such as https://shoal.example.org:9777".to_owned()));
        }
        Ok(())
    }
}

impl MailServer {
    /// A connection, which is made with the first mail.
    ///
    /// # Errors
    /// The URL is none.
    pub(crate) fn connection(&self, password: Option<&str>, timeout: Duration) -> Result<SmtpTransport, String> {
        let mut builder = SmtpTransport::from_url(&self.url).map_err(|error| error.to_string())?;
        if let Some(password) = password {
            let user =
                self.url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map_or("", |(user, _)| user);
            builder = builder.credentials(Credentials::new(user.to_owned(), password.to_owned()));
        }
        Ok(builder.timeout(Some(timeout)).build())
    }
}
