//! The one list of settings. A setting's name is its key in `shoal.toml`; in capitals behind
//! `SHOAL_` its variable; with dashes its flag.

use std::path::Path;

use super::{data_home, machine, sizes::bytes_text};

/// A setting.
pub(super) struct Setting {
    /// `snake_case`.
    pub(super) name: &'static str,
    /// What stands for the value in `--help`.
    pub(super) value: &'static str,
    /// For `--help`.
    pub(super) help: &'static str,
    /// Of use to a client, too, not only to a server.
    pub(super) client: bool,
    /// `true` or `false`; its flag alone is `true`.
    pub(super) is_switch: bool,
    /// Its value when nobody says anything, given the environment and the settings before it.
    pub(super) default: fn(&Known<'_>) -> String,
}

/// What a default may look at.
pub(super) struct Known<'a> {
    /// Environment variables.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// Settings that stand earlier in the list.
    pub(super) earlier: &'a dyn Fn(&str) -> String,
}

/// All settings, in the order in which they are shown.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "data_dir",
        value: "DIR",
        help: "Where everything is kept: database, objects, logs, keys, shoal.toml",
        client: true,
        is_switch: false,
        default: |known| data_home(known.variable).join("shoal").display().to_string(),
    },
    Setting {
        name: "listen",
        value: "ADDRESS",
        help: "Address and port of the server, or localhost and port; port 0 takes a free one",
        client: true,
        is_switch: false,
        default: |_| "127.0.0.1:9777".to_owned(),
    },
    Setting {
        name: "tls_cert",
        value: "FILE",
        help: "PEM file of the certificate for HTTPS, then those of its issuers; read again when it changes. In \
               shoal.toml: tls = { cert = .., key = .. }",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "tls_key",
        value: "FILE",
        help: "PEM file of that certificate's key",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "tls_ca",
        value: "FILE",
        help: "PEM file of the authority that clients must trust for that certificate; `none` is one that they trust \
               anyway",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "tls_names",
        value: "NAMES",
        help: "Further names and addresses that a self-made certificate is for, with commas between",
        client: false,
        is_switch: false,
        default: |_| String::new(),
    },
    Setting {
        name: "tls",
        value: "BOOL",
        help: "Speak HTTPS: with tls_cert, else with a self-made certificate, whose authority is tls/authority.pem in \
               the data directory",
        client: false,
        is_switch: true,
        default: |known| ((known.earlier)("tls_cert") != "none" || (known.earlier)("tls_key") != "none").to_string(),
    },
    Setting {
        name: "agents_listen",
        value: "ADDRESS",
        help: "Address and port for agents on other machines, with TLS; port 0 takes a free one and keeps it; `none` \
               is none. In shoal.toml: agents = { listen = .. }",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "agents_address",
        value: "HOST",
        help: "Host, or host and port, by which other machines reach that; `auto` is the address that is listened on",
        client: false,
        is_switch: false,
        default: |_| "auto".to_owned(),
    },
    Setting {
        name: "launch_command",
        value: "COMMAND",
        help: "Program, and its arguments with commas between, that starts agents on other machines: it is run with an \
               agent's command line behind; `none` \
               starts them here. In shoal.toml: launch = { command = [..] }",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "default_target",
        value: "NAME",
        help: "Compute target of jobs that choose none and whose instance type no target names: local, or one of \
               [target.NAME] in shoal.toml",
        client: false,
        is_switch: false,
        default: |_| "local".to_owned(),
    },
    Setting {
        name: "region",
        value: "REGION",
        help: "Region that clients believe in",
        client: true,
        is_switch: false,
        default: |_| "us-east-1".to_owned(),
    },
    Setting {
        name: "account",
        value: "DIGITS",
        help: "Account number in ARNs",
        client: true,
        is_switch: false,
        default: |_| "123456789012".to_owned(),
    },
    Setting {
        name: "default_bucket",
        value: "BUCKET",
        help: "S3 bucket that SDKs and `shoal train` use when none is named",
        client: true,
        is_switch: false,
        default: |known| format!("sagemaker-{}-{}", (known.earlier)("region"), (known.earlier)("account")),
    },
    Setting {
        name: "default_prefix",
        value: "PREFIX",
        help: "Below which keys in that bucket SDKs and `shoal train` write when no place is named: for keys that may \
               write nowhere else (docs/team.md)",
        client: true,
        is_switch: false,
        default: |_| String::new(),
    },
    Setting {
        name: "objects",
        value: "BUCKET",
        help: "Bucket of an S3-compatible store that has the contents of objects, s3://BUCKET/PREFIX?endpoint=URL; \
               `none` keeps them in the data directory (docs/objects.md)",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "objects_cache",
        value: "SIZE",
        help: "Disk space for contents that wait to be sent to that bucket, or are kept to be read",
        client: false,
        is_switch: false,
        default: |_| "20GiB".to_owned(),
    },
    Setting {
        name: "max_skew_s",
        value: "SECONDS",
        help: "How far a client's clock may be off",
        client: false,
        is_switch: false,
        default: |_| "900".to_owned(),
    },
    Setting {
        name: "grace_s",
        value: "SECONDS",
        help: "What a training program has between SIGTERM and SIGKILL",
        client: false,
        is_switch: false,
        default: |_| "120".to_owned(),
    },
    Setting {
        name: "lease_s",
        value: "SECONDS",
        help: "How long instances live on without a server; `auto` is the job's remaining time and an hour",
        client: false,
        is_switch: false,
        default: |_| "auto".to_owned(),
    },
    Setting {
        name: "silence_s",
        value: "SECONDS",
        help: "How long an agent may be silent before its instance is given up; `auto` is 60, on compute targets 300",
        client: false,
        is_switch: false,
        default: |_| "auto".to_owned(),
    },
    Setting {
        name: "log_quota",
        value: "SIZE",
        help: "Log lines, and metric points, that a training job may store; further ones are dropped",
        client: false,
        is_switch: false,
        default: |_| "512MiB".to_owned(),
    },
    Setting {
        name: "telemetry_space",
        value: "SIZE",
        help: "Disk space for logs and metrics of all jobs; the oldest are removed",
        client: false,
        is_switch: false,
        default: |_| "8GiB".to_owned(),
    },
    Setting {
        name: "telemetry_days",
        value: "DAYS",
        help: "For how many days logs and metrics are kept; `none` is as long as there is space",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "jobs_days",
        value: "DAYS",
        help: "Jobs are deleted this many days after their end, with their logs and metrics; a tuning job with its \
               trials. `none` is never",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "audit_days",
        value: "DAYS",
        help: "For how many days lines of the audit log are kept; `none` is for ever",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "fair_share_half_life",
        value: "TIME",
        help: "Of equal priority, jobs of the user start first who has used fewer instance seconds, of which half are \
               forgotten after this time; `none` is in order of creation",
        client: false,
        is_switch: false,
        default: |_| "7d".to_owned(),
    },
    Setting {
        name: "metrics_interval",
        value: "TIME",
        help: "Between two samples of an instance's processors, memory, disk, network and GPUs: 100ms to 60s; `none` is \
               no samples",
        client: false,
        is_switch: false,
        default: |_| "1s".to_owned(),
    },
    Setting {
        name: "strict",
        value: "BOOL",
        help: "Refuse requests with fields that have no effect here (docs/accepted.md), instead of noting them",
        client: false,
        is_switch: true,
        default: |_| "false".to_owned(),
    },
    Setting {
        name: "audit_reads",
        value: "BOOL",
        help: "Write calls that only read into audit.log, too (docs/team.md)",
        client: false,
        is_switch: true,
        default: |_| "false".to_owned(),
    },
    Setting {
        name: "cpus",
        value: "N",
        help: "CPU cores for instances",
        client: false,
        is_switch: false,
        default: |_| machine::cpus().to_string(),
    },
    Setting {
        name: "memory",
        value: "SIZE",
        help: "Memory for instances in all, such as 8GiB",
        client: false,
        is_switch: false,
        default: |_| bytes_text(machine::memory(Path::new("/"))),
    },
    Setting {
        name: "packing",
        value: "RULE",
        help: "Memory that an instance holds: `use` is what it uses and a reserve, and the last to start is ended if \
               the machine runs short; `promise` \
               is its whole type",
        client: false,
        is_switch: false,
        default: |_| "use".to_owned(),
    },
    Setting {
        name: "gpus",
        value: "N",
        help: "GPUs for instances in all",
        client: false,
        is_switch: false,
        default: |_| machine::gpus(Path::new("/dev")).to_string(),
    },
    Setting {
        name: "instances",
        value: "N",
        help: "Most instances at once",
        client: false,
        is_switch: false,
        default: |_| "64".to_owned(),
    },
    Setting {
        name: "wheel_house",
        value: "DIR",
        help: "Directory of wheels from which alone Python environments are made; `none` is the package index",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "python_package",
        value: "FILE",
        help: "Wheel of Shoal's Python package, for jobs that use PyTorch; `auto` looks beside this program, `none` is \
               none",
        client: false,
        is_switch: false,
        default: |_| "auto".to_owned(),
    },
    Setting {
        name: "engine",
        value: "COMMAND",
        help: "Container engine that has the images which are in no table: docker, podman or a path; `auto` is the \
               first that is there, `none` is none",
        client: false,
        is_switch: false,
        default: |_| "auto".to_owned(),
    },
    Setting {
        name: "network",
        value: "MODE",
        help: "What jobs reach beside their own instances and this server: none, allow-list (hosts of network_allow) \
               or host (what this machine reaches)",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "network_max",
        value: "MODE",
        help: "Most of that which a job may request by the tag shoal:network [default: what network says]",
        client: false,
        is_switch: false,
        default: |known| (known.earlier)("network"),
    },
    Setting {
        name: "network_allow",
        value: "HOSTS",
        help: "Hosts that jobs may connect to, with commas between: pypi.org, *.huggingface.co, index.corp:8443, \
               10.1.0.0/16:*; without a port 80 and 443",
        client: false,
        is_switch: false,
        default: |_| String::new(),
    },
    Setting {
        name: "file_systems",
        value: "LIST",
        help: "Directories of this machine that jobs may mount by FileSystemDataSource, with commas between: \
               fs-01234567=/srv/data. In shoal.toml: [file_systems] fs-01234567 = \"/srv/data\"",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_smtp",
        value: "URL",
        help: "SMTP server that sends mails of notifications: smtp://host:25, smtp://user@host:587?tls=required or \
               smtps://user@host; `none` sends no mails. In shoal.toml: [notifications] smtp = ..",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_smtp_password_file",
        value: "FILE",
        help: "File that has the password of that URL's user",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_from",
        value: "ADDRESS",
        help: "Sender of those mails",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_commands",
        value: "COMMANDS",
        help: "Commands that topics can have as subscribers, with commas between: pager=/usr/local/bin/page --urgent; \
               each gets a notification as JSON on its standard input",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_url",
        value: "URL",
        help: "Where receivers of notifications find this server, for the links in them; `none` is the address that it \
               listens on",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "notifications_job_state_changes",
        value: "ARN",
        help: "ARN of the topic that is sent changes of training and tuning jobs' states",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "sso_issuer",
        value: "URL",
        help: "OpenID Connect provider by which visitors of the console sign in: https://login.example.org; `none` is \
               none. In shoal.toml: [sso] issuer = ..",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "sso_client_id",
        value: "ID",
        help: "As which this server is registered there, with the redirect address https://<server>/console/sso/callback",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "sso_client_secret_file",
        value: "FILE",
        help: "File that has the client's secret; `none` for a public client",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "sso_scopes",
        value: "SCOPES",
        help: "What is requested of the provider, with blanks between",
        client: false,
        is_switch: false,
        default: |_| "openid email profile".to_owned(),
    },
    Setting {
        name: "sso_claim",
        value: "CLAIM",
        help: "The provider's claim that sso_keys lists: email, preferred_username, groups",
        client: false,
        is_switch: false,
        default: |_| "email".to_owned(),
    },
    Setting {
        name: "sso_keys",
        value: "LIST",
        help: "Which key who has, values of the claim with names of keys: anna@example.org=anna,admins=owner. In \
               shoal.toml: [sso.keys] \"anna@example.org\" = \"anna\"",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "sso_url",
        value: "URL",
        help: "This server's address in the redirect address; `none` is the one that the browser uses",
        client: false,
        is_switch: false,
        default: |_| "none".to_owned(),
    },
    Setting {
        name: "log",
        value: "LEVEL",
        help: "Least level of the server's own log lines: error, warn, info, debug, trace",
        client: false,
        is_switch: false,
        default: |_| "warn".to_owned(),
    },
];
