//! Visits to running instances: operations of ours beside SageMaker's (`Shoal.StartVisit`,
//! `Shoal.FeedVisit`, `Shoal.ReadVisit`), as AWS has none by which a client looks after an
//! instance. Bytes are base64 on the wire.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Call, Error, ErrorCode, Input, Reply,
    call::{plain_inputs, read},
};

/// What `X-Amz-Target` says: begins a visit.
pub const START_VISIT: &str = "Shoal.StartVisit";
/// Brings it input.
pub const FEED_VISIT: &str = "Shoal.FeedVisit";
/// Takes what it has put out, or waits a little for some.
pub const READ_VISIT: &str = "Shoal.ReadVisit";

/// Arguments of a command.
const MOST_WORDS: usize = 1000;
/// For which stacks are sampled.
const MOST_SECONDS: u32 = 600;

/// Begins a visit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StartVisit {
    /// Training job's name.
    pub training_job_name: String,
    /// The instance's rank, from 0: that of `algo-1`.
    #[serde(default)]
    pub rank: u32,
    /// Program and arguments; without one, the visit is for the stacks of all processes.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// The command is to have a terminal.
    #[serde(default)]
    pub terminal: Option<VisitTerminal>,
    /// Without a command: the stacks are sampled for this number of seconds and folded.
    #[serde(default)]
    pub seconds: Option<u32>,
}

/// A visitor's terminal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VisitTerminal {
    /// Its kind, for `TERM`.
    pub name: String,
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// Input for a visit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct FeedVisit {
    /// From [`START_VISIT`]'s answer.
    pub visit_id: String,
    /// What the command is to read, base64.
    #[serde(default)]
    pub input: String,
    /// There is no more.
    #[serde(default)]
    pub is_end: bool,
    /// The client goes: the visit is over.
    #[serde(default)]
    pub is_left: bool,
    /// The terminal's size, when it has changed: lines and characters of a line.
    #[serde(default)]
    pub size: Option<(u16, u16)>,
}

/// Asks for output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReadVisit {
    /// From [`START_VISIT`]'s answer.
    pub visit_id: String,
}

/// Output of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitOutput {
    /// It went to standard error.
    pub is_stderr: bool,
    /// Base64.
    pub data: String,
}

/// How a visit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitResult {
    /// `exit(code)`.
    Exited(i32),
    /// Killed by this signal.
    Signaled(i32),
    /// It did not come to its end: why.
    Broken(String),
}

impl Input for StartVisit {
    fn read(call: Call) -> Result<Self, Error> {
        read::<Self>(call.input)?.check()
    }
}

plain_inputs!(FeedVisit, ReadVisit);

impl StartVisit {
    fn check(self) -> Result<Self, Error> {
        let wrong =
            |why: &str| Err(Error::new(ErrorCode::ValidationException, format!("Invalid value at 'command': {why}")));
        if self.seconds.is_some_and(|seconds| self.command.is_some() || !(1..=MOST_SECONDS).contains(&seconds)) {
            let why = format!("Invalid value at 'seconds': from 1 to {MOST_SECONDS}, and without a command");
            return Err(Error::new(ErrorCode::ValidationException, why));
        }
        match &self.command {
            Some(words) if words.first().is_none_or(String::is_empty) => wrong("it names no program"),
            Some(words) if words.len() > MOST_WORDS => wrong(&format!("more than {MOST_WORDS} words")),
            Some(words) if words.iter().any(|word| word.contains('\0')) => wrong("a word contains a zero byte"),
            _ => Ok(self),
        }
    }
}

impl Reply {
    /// `StartVisit`: names the visit from now on.
    pub fn start_visit(visit_id: &str) -> Self {
        Self::of(json!({"VisitId": visit_id}))
    }

    /// `FeedVisit`: whether the input was accepted; if not, nothing reads it now, and the client
    /// sends it again.
    pub fn feed_visit(is_taken: bool) -> Self {
        Self::of(json!({"IsTaken": is_taken}))
    }

    /// `ReadVisit`: output in order, and the end after all of it.
    pub fn read_visit(output: &[VisitOutput], end: Option<&VisitResult>) -> Self {
        let stream = |it: &VisitOutput| if it.is_stderr { "stderr" } else { "stdout" };
        let pieces: Vec<Value> = output.iter().map(|it| json!({"Stream": stream(it), "Data": it.data})).collect();
        let answer = Self::of(json!({ "Output": pieces }));
        match end {
            Some(VisitResult::Exited(code)) => answer.with("End", json!({ "ExitCode": code })),
            Some(VisitResult::Signaled(signal)) => answer.with("End", json!({ "Signal": signal })),
            Some(VisitResult::Broken(reason)) => answer.with("End", json!({ "Reason": reason })),
            None => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(command: Option<&[&str]>) -> Result<StartVisit, Error> {
        let command = command.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
        StartVisit { training_job_name: "j".to_owned(), rank: 0, command, terminal: None, seconds: None }.check()
    }

    #[test]
    fn a_command_names_a_program() {
        for good in [None, Some(&["ls"][..]), Some(&["ls", ""][..])] {
            assert_eq!(start(good).unwrap().command.map(|words| words.len()), good.map(<[_]>::len));
        }
        for (bad, why) in [
            (&[][..], "names no program"),
            (&[""], "names no program"),
            (&["a\0"], "zero byte"),
            (&["x"; 1001], "1000 words"),
        ] {
            let error = start(Some(bad)).unwrap_err();
            assert!(error.message.contains(why), "{bad:?}: {}", error.message);
        }
    }

    #[test]
    fn stacks_are_sampled_for_a_bounded_time() {
        for (seconds, command, is_good) in
            [(1, false, true), (600, false, true), (0, false, false), (601, false, false), (9, true, false)]
        {
            let visit = StartVisit { seconds: Some(seconds), ..start(None).unwrap() };
            let visit = StartVisit { command: command.then(|| vec!["ls".to_owned()]), ..visit };
            assert_eq!(visit.check().is_ok(), is_good, "{seconds} {command}");
        }
    }

    #[test]
    fn answers_tell_streams_and_ends() {
        let output = [
            VisitOutput { is_stderr: false, data: "YQ==".to_owned() },
            VisitOutput { is_stderr: true, data: "Yg==".to_owned() },
        ];
        let pieces = json!([{"Stream": "stdout", "Data": "YQ=="}, {"Stream": "stderr", "Data": "Yg=="}]);
        assert_eq!(Reply::read_visit(&output, None), Reply::of(json!({ "Output": pieces })));
        for (end, expected) in [
            (VisitResult::Exited(3), json!({"ExitCode": 3})),
            (VisitResult::Signaled(9), json!({"Signal": 9})),
            (VisitResult::Broken("gone".to_owned()), json!({"Reason": "gone"})),
        ] {
            assert_eq!(Reply::read_visit(&[], Some(&end)), Reply::of(json!({"Output": [], "End": expected})));
        }
    }
}
