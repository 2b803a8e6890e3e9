//! A job's `requirements.txt`, checked before pip reads it outside of the sandbox: pip must run no
//! code of a package there and read none of the server's files, so requirements are of an index,
//! and only wheels are installed.

/// Why a line of a job's requirements cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("requirements.txt:{line}: \"{text}\" {why}")]
pub struct RequirementsError {
    /// From 1.
    pub line: usize,
    /// As it stands there.
    pub text: String,
    /// And what to do.
    pub why: &'static str,
}

const NOT_OF_AN_INDEX: &str = "is no requirement of an index; requirements are names with versions, such as \
                               numpy==2.0; put sources into source_dir or \
     dependencies, which the script can import, and build a wheel of everything else and name its directory as \
                               wheel_house in shoal.toml";
const OTHER_OPTION: &str = "is an option that is not followed here; those that are: --index-url, --extra-index-url, \
                            --find-links (each with an http or \
                            https address), --pre, --prefer-binary, and --hash behind a requirement";
const OTHER_FILE: &str = "names another file; put its lines here";
const NO_TEXT: &str = "has characters that requirements do not have; remove all but letters of ASCII, digits and signs";
const VARIABLE: &str = "has a variable, and there are none; write what it stands for";

/// The requirements, one a line without comments; empty if nothing is required.
///
/// # Errors
/// The first line that is not followed here, and what to do.
pub fn check(text: &str) -> Result<String, RequirementsError> {
    let mut plain = String::new();
    for (line, text) in logical_lines(text) {
        let failed = |why| RequirementsError { line, text: text.clone(), why };
        // Python takes more characters for the end of a line than one sees.
        if !text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte)) {
            return Err(failed(NO_TEXT));
        }
        if text.contains("${") {
            return Err(failed(VARIABLE));
        }
        match text.starts_with('-') {
            true => option(&text).map_err(failed)?,
            false => requirement(&text).map_err(failed)?,
        }
        plain.push_str(&text);
        plain.push('\n');
    }
    Ok(plain)
}

/// What Shoal's Python package has under another's name: its distribution, its module, and the
/// version of which it has the API.
pub(crate) const OURS: [(&str, &str, &str); 4] = [
    ("horovod", "horovod", "0.28.1"),
    ("smdistributed-dataparallel", "smdistributed/dataparallel", "1.8.0"),
    ("smdistributed-modelparallel", "smdistributed/modelparallel", "1.15.0"),
    ("smdistributed", "smdistributed", "1.15.0"),
];

/// Takes out what Shoal's Python package serves: gives the other lines and, for each that is left
/// out, what to say of it.
pub fn without_ours(text: &str) -> (String, Vec<String>) {
    without(text, &OURS.map(|(name, _, version)| (name, version)))
}

/// The same of Debugger's library, which all instances have: AWS's own pins packages that current
/// versions of frameworks do not go with.
pub fn without_debugger(text: &str) -> (String, Vec<String>) {
    without(text, &[("smdebug", "1.0.34")])
}

fn without(text: &str, ours: &[(&str, &str)]) -> (String, Vec<String>) {
    let (mut rest, mut said) = (String::new(), Vec::new());
    for (_, line) in logical_lines(text) {
        match ours.iter().find(|(name, _)| names(&line, name)) {
            Some((name, version)) => {
                said.push(format!("{line}: satisfied by Shoal's {name} (the API of {version})"));
            }
            None => {
                rest.push_str(&line);
                rest.push('\n');
            }
        }
    }
    (rest, said)
}

/// Whether a requirement is of this distribution: by its name, or by the file or the repository
/// that an address ends with.
fn names(line: &str, name: &str) -> bool {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '.'], "-");
    let first = line.split_whitespace().next().unwrap_or_default();
    let of_address = first.contains("://").then(|| {
        let path = first.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let file = path.rsplit('/').next().unwrap_or_default();
        // A wheel's or an archive's name goes on with its version, a repository's with a branch.
        let is_version = |(at, _): &(usize, &str)| file[at + 1..].starts_with(|first: char| first.is_ascii_digit());
        let end =
            file.find('@').or_else(|| file.match_indices('-').find(is_version).map(|(at, _)| at)).unwrap_or(file.len());
        plain(file[..end].trim_end_matches(".git"))
    });
    let of_name = || {
        let end =
            line.find(|letter: char| !(letter.is_ascii_alphanumeric() || "._-".contains(letter))).unwrap_or(line.len());
        plain(&line[..end])
    };
    !line.starts_with('-') && of_address.unwrap_or_else(of_name) == name
}

/// Lines that end in a backslash go on in the next; a comment begins at the line's start or behind
/// a blank.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let (mut lines, mut open) = (Vec::new(), None);
    let text = text.trim_start_matches('\u{feff}');
    for (number, line) in (1..).zip(text.lines()) {
        let (from, begun): (usize, String) = open.take().unwrap_or((number, String::new()));
        let line = match line.trim_start().starts_with('#') {
            true => "",
            false => line.find(" #").or_else(|| line.find("\t#")).map_or(line, |at| &line[..at]),
        };
        match line.strip_suffix('\\') {
            Some(line) => open = Some((from, begun + line)),
            None => lines.push((from, begun + line)),
        }
    }
    lines.extend(open);
    lines
        .into_iter()
        .map(|(number, line)| (number, line.trim().to_owned()))
        .filter(|(_, line)| !line.is_empty())
        .collect()
}

fn option(text: &str) -> Result<(), &'static str> {
    let (name, value) = text.split_once([' ', '=', '\t']).map_or((text, ""), |(name, value)| (name, value.trim()));
    match name {
        "--pre" | "--prefer-binary" if value.is_empty() => Ok(()),
        "-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links" => {
            let is_address = value.starts_with("https://") || value.starts_with("http://");
            if is_address && !value.contains(char::is_whitespace) { Ok(()) } else { Err(OTHER_OPTION) }
        }
        "-r" | "--requirement" | "-c" | "--constraint" => Err(OTHER_FILE),
        "-e" | "--editable" => Err(NOT_OF_AN_INDEX),
        _ => Err(OTHER_OPTION),
    }
}

fn requirement(text: &str) -> Result<(), &'static str> {
    if text.split_whitespace().any(|word| word.starts_with('-') && !word.starts_with("--hash=")) {
        return Err(OTHER_OPTION);
    }
    // What follows the semicolon is a condition, and what follows the name are hashes.
    let named = text.split(';').next().unwrap_or_default();
    let named = named.find(" --").map_or(named, |at| &named[..at]);
    let begins = named.starts_with(|first: char| first.is_ascii_alphanumeric());
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-[],()<>=!~*+ \t".contains(letter);
    // A name with such an ending is a file to pip.
    let is_file = [".whl", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar"]
        .iter()
        .any(|end| named.trim().to_lowercase().ends_with(end));
    if begins && named.chars().all(is_plain) && !is_file { Ok(()) } else { Err(NOT_OF_AN_INDEX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_files_are_followed() {
        let text = "\u{feff}# needed\nnumpy==2.0   # pinned\npandas[parquet] >= 2, \\\n  < 3 ; python_version < \
                    '3.13'\n\n--extra-index-url https://example.org/simple\n\
                    torch==2.1.0+cu118 --hash=sha256:00 \\\n --hash=sha256:01\nzope.interface\n";
        assert_eq!(
            check(text).unwrap(),
            "numpy==2.0\npandas[parquet] >= 2,   < 3 ; python_version < '3.13'\n--extra-index-url \
             https://example.org/simple\n\
             torch==2.1.0+cu118 --hash=sha256:00  --hash=sha256:01\nzope.interface\n"
        );
        assert_eq!(check("# nothing\n").unwrap(), "");
    }

    #[test]
    fn what_our_package_serves_is_left_out() {
        let text = "numpy==2.0\nhorovod[pytorch,keras]==0.21.0  # pinned\nHorovod>=0.2 \\\n ; python_version > \
                    '3'\nsmdistributed_modelparallel\n\
                    https://smdataparallel.s3.amazonaws.com/binary/pytorch/2.0.1/smdistributed_dataparallel-1.8.0-cp310-cp310-linux_x86_64.whl\n\
                    git+https://github.com/horovod/horovod.git@v0.28.1\nhorovod @ \
                    https://example.org/x.zip\nhorovod-tools\nhttps://h/horovod-tools-1.0.tar.gz\n--extra-index-url=https://h/horovod\n";
        let (rest, said) = without_ours(text);
        assert_eq!(
            rest,
            "numpy==2.0\nhorovod-tools\nhttps://h/horovod-tools-1.0.tar.gz\n--extra-index-url=https://h/horovod\n"
        );
        assert_eq!(said[0], "horovod[pytorch,keras]==0.21.0: satisfied by Shoal's horovod (the API of 0.28.1)");
        assert_eq!(said.len(), 6, "{said:?}");
        assert!(said[3].ends_with("satisfied by Shoal's smdistributed-dataparallel (the API of 1.8.0)"), "{}", said[3]);
        assert_eq!(without_ours("-e .\nx==1"), ("-e .\nx==1\n".to_owned(), Vec::new()));
        let (rest, notes) = without_debugger("smdebug>=1.0\nsmdebug-rulesconfig==1.0.1\nhorovod");
        assert_eq!(rest, "smdebug-rulesconfig==1.0.1\nhorovod\n");
        assert_eq!(notes, ["smdebug>=1.0: satisfied by Shoal's smdebug (the API of 1.0.34)"]);
    }

    #[test]
    fn what_would_run_code_or_read_files_is_refused() {
        for (text, why) in [
            ("git+https://example.org/a.git", NOT_OF_AN_INDEX),
            ("a @ https://example.org/a.tar.gz", NOT_OF_AN_INDEX),
            ("a@file:///etc/shadow", NOT_OF_AN_INDEX),
            ("./package", NOT_OF_AN_INDEX),
            (".", NOT_OF_AN_INDEX),
            ("/root/package", NOT_OF_AN_INDEX),
            ("../package", NOT_OF_AN_INDEX),
            ("package/", NOT_OF_AN_INDEX),
            ("a-1.0.tar.gz", NOT_OF_AN_INDEX),
            ("-e .", NOT_OF_AN_INDEX),
            ("-r /etc/shadow", OTHER_FILE),
            ("--constraint=c.txt", OTHER_FILE),
            ("--index-url file:///etc", OTHER_OPTION),
            ("--find-links /root", OTHER_OPTION),
            ("--no-binary :all:", OTHER_OPTION),
            ("--trusted-host example.org", OTHER_OPTION),
            ("a --global-option=x", OTHER_OPTION),
            ("a==1 --hash=sha256:00 --config-settings=x=y", OTHER_OPTION),
            ("a; x\u{2028}-e .", NO_TEXT),
            ("a; x\x0c-e .", NO_TEXT),
            ("a -r /etc/shadow", OTHER_OPTION),
            ("a; python_version > '3' -e .", OTHER_OPTION),
            ("--index-url https://${PIP_PASSWORD}@example.org/", VARIABLE),
            ("--index-url https://example.org/ --no-binary :all:", OTHER_OPTION),
        ] {
            let error = check(&format!("numpy\n{text}\n")).unwrap_err();
            assert_eq!((error.line, error.why), (2, why), "{text}");
        }
        // Nothing hides behind a line that goes on, nor behind one that looks like a comment.
        assert_eq!(check("a \\\n-e .").unwrap_err().line, 1);
        assert_eq!(check("# a\\\n-e .").unwrap_err().line, 2);
    }
}
