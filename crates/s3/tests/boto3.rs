//! The real boto3 against the front over real HTTP. What is expected stands in `client.py`,
//! `access.py` and `answers.py`, a function per test.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use support::Server;

fn check(case: &str) {
    Server::start().check("client.py", case);
}

fn check_access(case: &str) {
    Server::start().check("access.py", case);
}

fn check_answers(case: &str) {
    Server::start().check("answers.py", case);
}

#[test]
fn buckets() {
    check("buckets");
}

#[test]
fn objects_and_their_attributes() {
    check("objects_and_their_attributes");
}

#[test]
fn odd_keys() {
    check("odd_keys");
}

#[test]
fn ranges() {
    check("ranges");
}

#[test]
fn conditions() {
    check("conditions");
}

#[test]
fn listings() {
    check("listings");
}

#[test]
fn multipart_uploads() {
    check("multipart_uploads");
}

#[test]
fn parts_are_verified() {
    check("parts_are_verified");
}

/// So that completion has nothing to copy.
#[test]
fn parts_lie_in_one_file() {
    let server = Server::start();
    if server.check("client.py", "parts_left_alone") {
        assert_eq!(server.object_files(), 2, "the object that a part is copied from, and the parts");
        server.check("client.py", "parts_left_alone_become_an_object");
        assert_eq!(server.object_files(), 2);
    }
}

#[test]
fn copies() {
    check("copies");
}

#[test]
fn deletions() {
    check("deletions");
}

#[test]
fn checksums() {
    check("checksums");
}

#[test]
fn chunked_bodies() {
    check("chunked_bodies");
}

#[test]
fn cut_bodies() {
    check_answers("cut_bodies");
}

#[test]
fn refusals() {
    check_answers("refusals");
}

#[test]
fn conditional_deletions() {
    check_answers("conditional_deletions");
}

#[test]
fn completions_at_once() {
    check_answers("completions_at_once");
}

#[test]
fn versions_and_tags() {
    check_answers("versions_and_tags");
}

#[test]
fn as_aws_answers() {
    check_answers("as_aws_answers");
}

#[test]
fn presigned_urls() {
    check_access("presigned_urls");
}

#[test]
fn signatures_are_verified() {
    check_access("signatures_are_verified");
}

#[test]
fn job_keys_open_only_the_job() {
    check_access("job_keys_open_only_the_job");
}

#[test]
fn a_parameter_is_the_same_however_it_is_written() {
    check_access("a_parameter_is_the_same_however_it_is_written");
}

#[test]
fn forms_write_what_their_key_may() {
    check_access("forms_write_what_their_key_may");
}
