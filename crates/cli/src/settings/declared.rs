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

/// A setting of no use to clients.
const fn of_server(
    name: &'static str,
    value: &'static str,
    help: &'static str,
    default: fn(&Known<'_>) -> String,
) -> Setting {
    Setting { name, value, help, client: false, is_switch: false, default }
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
    of_server(
        "tls_cert",
        "FILE",
        "PEM file of the certificate for HTTPS, then those of its issuers; read again when it changes. In \
               shoal.toml: tls = { cert = .., key = .. }",
        |_| "none".to_owned(),
    ),
    of_server("tls_key", "FILE", "PEM file of that certificate's key", |_| "none".to_owned()),
    of_server(
        "tls_ca",
        "FILE",
        "PEM file of the authority that clients must trust for that certificate; `none` is one that they trust \
               anyway",
        |_| "none".to_owned(),
    ),
    of_server(
        "tls_names",
        "NAMES",
        "Further names and addresses that a self-made certificate is for, with commas between",
        |_| String::new(),
    ),
    Setting {
        name: "tls",
        value: "BOOL",
        help: "Speak HTTPS: with tls_cert, else with a self-made certificate, whose authority is tls/authority.pem in \
               the data directory",
        client: false,
        is_switch: true,
        default: |known| ((known.earlier)("tls_cert") != "none" || (known.earlier)("tls_key") != "none").to_string(),
    },
    of_server(
        "agents_listen",
        "ADDRESS",
        "Address and port for agents on other machines, with TLS; port 0 takes a free one and keeps it; `none` \
               is none. In shoal.toml: agents = { listen = .. }",
        |_| "none".to_owned(),
    ),
    of_server(
        "agents_address",
        "HOST",
        "Host, or host and port, by which other machines reach that; `auto` is the address that is listened on",
        |_| "auto".to_owned(),
    ),
    of_server(
        "launch_command",
        "COMMAND",
        "Program, and its arguments with commas between, that starts agents on other machines: it is run with an \
               agent's command line behind; `none` \
               starts them here. In shoal.toml: launch = { command = [..] }",
        |_| "none".to_owned(),
    ),
    of_server(
        "default_target",
        "NAME",
        "Compute target of jobs that choose none and whose instance type no target names: local, or one of \
               [target.NAME] in shoal.toml",
        |_| "local".to_owned(),
    ),
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
    of_server(
        "objects",
        "BUCKET",
        "Bucket of an S3-compatible store that has the contents of objects, s3://BUCKET/PREFIX?endpoint=URL; \
               `none` keeps them in the data directory (docs/objects.md)",
        |_| "none".to_owned(),
    ),
    of_server(
        "objects_cache",
        "SIZE",
        "Disk space for contents that wait to be sent to that bucket, or are kept to be read",
        |_| "20GiB".to_owned(),
    ),
    of_server("max_skew_s", "SECONDS", "How far a client's clock may be off", |_| "900".to_owned()),
    of_server("grace_s", "SECONDS", "What a training program has between SIGTERM and SIGKILL", |_| "120".to_owned()),
    of_server(
        "lease_s",
        "SECONDS",
        "How long instances live on without a server; `auto` is the job's remaining time and an hour",
        |_| "auto".to_owned(),
    ),
    of_server(
        "silence_s",
        "SECONDS",
        "How long an agent may be silent before its instance is given up; `auto` is 60, on compute targets 3900",
        |_| "auto".to_owned(),
    ),
    of_server(
        "log_quota",
        "SIZE",
        "Log lines, and metric points, that a training job may store; further ones are dropped",
        |_| "512MiB".to_owned(),
    ),
    of_server("telemetry_space", "SIZE", "Disk space for logs and metrics of all jobs; the oldest are removed", |_| {
        "8GiB".to_owned()
    }),
    of_server(
        "telemetry_days",
        "DAYS",
        "For how many days logs and metrics are kept; `none` is as long as there is space",
        |_| "none".to_owned(),
    ),
    of_server(
        "jobs_days",
        "DAYS",
        "Jobs are deleted this many days after their end, with their logs and metrics; a tuning job with its \
               trials. `none` is never",
        |_| "none".to_owned(),
    ),
    of_server(
        "experiments_days",
        "DAYS",
        "Experiments, trials, their components, artifacts, actions and contexts are deleted this many days after \
               their last change, unless something later is linked to them or a component's job is there. `none` is never",
        |_| "none".to_owned(),
    ),
    of_server(
        "environments_days",
        "DAYS",
        "Python environments and files of images on this machine that no job has wanted for this number of days are removed; \
               `none` is never",
        |_| "none".to_owned(),
    ),
    of_server("audit_days", "DAYS", "For how many days lines of the audit log are kept; `none` is for ever", |_| {
        "none".to_owned()
    }),
    of_server(
        "fair_share_half_life",
        "TIME",
        "Of equal priority, jobs of the user start first who has used fewer instance seconds, of which half are \
               forgotten after this time; `none` is in order of creation",
        |_| "7d".to_owned(),
    ),
    of_server(
        "metrics_interval",
        "TIME",
        "Between two samples of an instance's processors, memory, disk, network and GPUs: 100ms to 60s; `none` is \
               no samples",
        |_| "1s".to_owned(),
    ),
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
    of_server("cpus", "N", "CPU cores for instances", |_| machine::cpus().to_string()),
    of_server("memory", "SIZE", "Memory for instances in all, such as 8GiB", |_| {
        bytes_text(machine::memory(Path::new("/")))
    }),
    of_server(
        "packing",
        "RULE",
        "Memory that an instance holds: `use` is what it uses and a reserve, and the last to start is ended if \
               the machine runs short; `promise` \
               is its whole type",
        |_| "use".to_owned(),
    ),
    of_server("gpus", "N", "GPUs for instances in all", |_| machine::gpus(Path::new("/dev")).to_string()),
    of_server("instances", "N", "Most instances at once", |_| "64".to_owned()),
    of_server(
        "wheel_house",
        "DIR",
        "Directory of wheels from which alone Python environments are made; `none` is the package index",
        |_| "none".to_owned(),
    ),
    of_server(
        "python_package",
        "FILE",
        "Wheel of Shoal's Python package, for jobs that use PyTorch; `auto` looks beside this program, `none` is \
               none",
        |_| "auto".to_owned(),
    ),
    of_server(
        "engine",
        "COMMAND",
        "Container engine that has the images which are in no table: docker, podman or a path; `auto` is the \
               first that is there, `none` is none",
        |_| "auto".to_owned(),
    ),
    of_server(
        "network",
        "MODE",
        "What jobs reach beside their own instances and this server: none, allow-list (hosts of network_allow) \
               or host (what this machine reaches)",
        |_| "none".to_owned(),
    ),
    of_server(
        "network_max",
        "MODE",
        "Most of that which a job may request by the tag shoal:network [default: what network says]",
        |known| (known.earlier)("network"),
    ),
    of_server(
        "network_allow",
        "HOSTS",
        "Hosts that jobs may connect to, with commas between: pypi.org, *.huggingface.co, index.corp:8443, \
               10.1.0.0/16:*; without a port 80 and 443",
        |_| String::new(),
    ),
    of_server(
        "file_systems",
        "LIST",
        "Directories of this machine that jobs may mount by FileSystemDataSource, with commas between: \
               fs-01234567=/srv/data. In shoal.toml: [file_systems] fs-01234567 = \"/srv/data\"",
        |_| "none".to_owned(),
    ),
    of_server(
        "notifications_smtp",
        "URL",
        "SMTP server that sends mails of notifications: smtp://host:25, smtp://user@host:587?tls=required or \
               smtps://user@host; `none` sends no mails. In shoal.toml: [notifications] smtp = ..",
        |_| "none".to_owned(),
    ),
    of_server("notifications_smtp_password_file", "FILE", "File that has the password of that URL's user", |_| {
        "none".to_owned()
    }),
    of_server("notifications_from", "ADDRESS", "Sender of those mails", |_| "none".to_owned()),
    of_server(
        "notifications_commands",
        "COMMANDS",
        "Commands that topics can have as subscribers, with commas between: pager=/usr/local/bin/page --urgent; \
               each gets a notification as JSON on its standard input",
        |_| "none".to_owned(),
    ),
    of_server(
        "notifications_url",
        "URL",
        "Where receivers of notifications find this server, for the links in them; `none` is the address that it \
               listens on",
        |_| "none".to_owned(),
    ),
    of_server(
        "notifications_job_state_changes",
        "ARN",
        "ARN of the topic that is sent changes of training and tuning jobs' states",
        |_| "none".to_owned(),
    ),
    of_server(
        "sso_issuer",
        "URL",
        "OpenID Connect provider by which visitors of the console sign in: https://login.example.org; `none` is \
               none. In shoal.toml: [sso] issuer = ..",
        |_| "none".to_owned(),
    ),
    of_server(
        "sso_client_id",
        "ID",
        "As which this server is registered there, with the redirect address https://<server>/console/sso/callback",
        |_| "none".to_owned(),
    ),
    of_server(
        "sso_client_secret_file",
        "FILE",
        "File that has the client's secret; `none` for a public client",
        |_| "none".to_owned(),
    ),
    of_server("sso_scopes", "SCOPES", "What is requested of the provider, with blanks between", |_| {
        "openid email profile".to_owned()
    }),
    of_server(
        "sso_claim",
        "CLAIM",
        "The provider's claim that sso_keys lists: email, preferred_username, groups",
        |_| "email".to_owned(),
    ),
    of_server(
        "sso_keys",
        "LIST",
        "Which key who has, values of the claim with names of keys: anna@example.org=anna,admins=owner. In \
               shoal.toml: [sso.keys] \"anna@example.org\" = \"anna\"",
        |_| "none".to_owned(),
    ),
    of_server(
        "sso_url",
        "URL",
        "This server's address in the redirect address; `none` is the one that the browser uses",
        |_| "none".to_owned(),
    ),
    of_server("log", "LEVEL", "Least level of the server's own log lines: error, warn, info, debug, trace", |_| {
        "warn".to_owned()
    }),
];
