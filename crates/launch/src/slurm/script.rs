//! The batch script of an allocation: one step of Slurm's for each agent, so that each can be ended
//! by itself. Which agents have ended, and their last lines, stand in the job's comment, where
//! the server reads it with the job's state: it needs no shared file system.

use std::fmt::Write;

use super::SlurmOptions;
use super::users::USER;
use crate::AllocationSpec;
use crate::record::Submitted;

/// Name of the step of a host.
pub(super) fn step_name(host: u32) -> String {
    format!("host-{host}")
}

/// Names the variable by which an agent finds the numbers of the GPUs that the scheduler gave it.
const GPUS_FROM: &str = "SHOAL_GPUS_FROM";

/// Of a job of another user's than the caller: by the environment it may be the caller's.
const IDENTITY: &str = r#"USER=$(id -un) || exit 1
LOGNAME=$USER
HOME=$(getent passwd "$USER" | cut -d : -f 6)
export USER LOGNAME HOME
"#;

/// The script. `one_per_node`: each agent on a node of its own.
pub(super) fn script(
    options: &SlurmOptions,
    spec: &AllocationSpec,
    job: &Submitted,
    program: &str,
    one_per_node: bool,
) -> String {
    // By `sbatch`'s environment: what it needed itself may be a credential.
    let mut text = String::from("#!/bin/sh\nunset SLURM_JWT\n");
    let _ = writeln!(text, "export {GPUS_FROM}=SLURM_STEP_GPUS");
    let is_anothers = job.user.is_some();
    if is_anothers {
        text.push_str(IDENTITY);
    }
    for (name, value) in spec.env.iter().filter(|(name, _)| !is_anothers || is_for_all(name)) {
        let _ = writeln!(text, "export {name}={}", quoted(value));
    }
    for (name, value) in &options.env {
        // The caller's own name is not known before.
        let _ = writeln!(text, "export {name}={}", quoted(value).replace(USER, r#"'"$(id -un)"'"#));
    }
    let words: Vec<String> = std::iter::once(program).chain(spec.args.iter().map(String::as_str)).map(quoted).collect();
    let hosts: Vec<String> = job.hosts.iter().map(u32::to_string).collect();
    let placed = if one_per_node { "--nodes=1 --nodelist=\"$node\" --exact --mem=0" } else { "--nodes=1 --exact" };
    let _ = write!(
        text,
        r#"[ -n "${{HOME:-}}" ] || export HOME="$(getent passwd "$(id -u)" | cut -d : -f 6)"
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
mkfifo "$place/ended" || exit 1
exec 3<>"$place/ended"
set -- $(scontrol show hostnames "$SLURM_JOB_NODELIST")
left=0
for host in {hosts}; do
  node=${{1:-}}
  [ $# -eq 0 ] || shift
  left=$((left + 1))
  (
    exec 3>&-
    srun --job-name="host-$host" --ntasks=1 {placed} --cpu-bind=none --export=ALL --input=none \
      {command} --host "$host" >"$place/$host" 2>&1 </dev/null
    code=$?
    last=$(grep -v '^srun: \|^slurmstepd: ' "$place/$host" | tail -n 1 | tr -d '|\n' | cut -c 1-300)
    # Slurm's own lines are the reason only where an agent has printed none.
    [ -n "$last" ] || [ $code -eq 0 ] || last=$(tail -n 1 "$place/$host" | tr -d '|\n' | cut -c 1-300)
    echo "$host:$last" >"$place/ended"
  ) &
done
comment={label}
while [ $left -gt 0 ]; do
  read -r ended <&3
  left=$((left - 1))
  comment="$comment|$ended"
  scontrol update JobId="$SLURM_JOB_ID" Comment="$comment"
done
wait
"#,
        hosts = hosts.join(" "),
        command = words.join(" "),
        label = quoted(&spec.wants.label),
    );
    text
}

/// Another user's job gets it, too. The caller's home, and its settings of pip, proxies and
/// registries, which may have passwords in them, are its own.
fn is_for_all(name: &str) -> bool {
    name == "PATH" || ["SHOAL_", "LANG", "LC_"].iter().any(|prefix| name.starts_with(prefix))
}

/// A word of a shell's.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The hosts that have ended by a job's comment, with their last lines.
pub(super) fn ended(comment: &str) -> Vec<(u32, &str)> {
    let of_host = |part: &str| part.split_once(':').and_then(|(host, _)| host.parse().ok());
    comment.split('|').skip(1).filter_map(|part| Some((of_host(part)?, part.split_once(':')?.1))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::Wants;

    #[test]
    fn words_stay_words() {
        assert_eq!(quoted("it's \"$HOME\""), r#"'it'\''s "$HOME"'"#);
    }

    #[test]
    fn another_users_job_has_that_users_home_and_places() {
        let of = |user: Option<&str>| {
            let env = vec![("SHOAL_CACHE".to_owned(), "/local disk/{user}/shoal".to_owned())];
            let options = SlurmOptions { env, ..SlurmOptions::default() };
            let spec = AllocationSpec {
                id: "a-1".to_owned(),
                instances: 1,
                program: "/bin/shoal".into(),
                args: Vec::new(),
                env: vec![
                    ("SHOAL_AGENT_TOKEN".to_owned(), "{user}".to_owned()),
                    ("HOME".to_owned(), "/root".to_owned()),
                    ("PIP_INDEX_URL".to_owned(), "https://a:secret@b".to_owned()),
                ],
                nodes: Vec::new(),
                wants: Wants::default(),
                dir: PathBuf::new(),
            };
            let user = user.map(str::to_owned);
            script(&options, &spec, &Submitted { id: 0, name: String::new(), hosts: [1].into(), user }, "shoal", true)
        };
        let begin = |text: &str| {
            Vec::from_iter(text.lines().skip(3).take_while(|line| !line.starts_with('[')).map(str::to_owned))
        };
        let variables =
            ["export SHOAL_AGENT_TOKEN='{user}'", r#"export SHOAL_CACHE='/local disk/'"$(id -un)"'/shoal'"#];
        let own = ["export HOME='/root'", "export PIP_INDEX_URL='https://a:secret@b'"];
        assert_eq!(begin(&of(None)), [variables[0], own[0], own[1], variables[1]]);
        assert_eq!(begin(&of(Some("anna"))).split_off(4), variables);
        assert!(of(Some("anna")).contains("\nexport USER LOGNAME HOME\n"));
    }

    #[test]
    fn a_comment_has_the_hosts_that_have_ended() {
        assert_eq!(ended("arn:aws:sagemaker:job/a"), []);
        assert_eq!(ended("arn:a|2:no space left: /tmp|10:"), [(2, "no space left: /tmp"), (10, "")]);
        assert_eq!(ended("arn:a|x:y|3"), [], "what is not ours is passed over");
    }
}
