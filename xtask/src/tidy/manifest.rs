//! Every foreign crate in `[workspace.dependencies]` says why it is there.

/// Complaints about entries without a comment above or beside them. Our own crates need none.
pub(super) fn check(manifest: &str) -> Vec<String> {
    let lines = manifest.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.dependencies]").skip(1);
    let mut problems = Vec::new();
    let mut explained = false;
    for (index, line) in lines.take_while(|(_, line)| !line.starts_with('[')) {
        let is_comment = line.starts_with('#');
        let is_entry = line.contains(" = ") && !is_comment && !line.starts_with(' ');
        if is_entry && !explained && !line.contains(" # ") && !line.starts_with("shoal-") {
            let name = line.split(' ').next().unwrap_or(line);
            problems.push(format!("Cargo.toml:{}: {name}: say in a comment above it why this crate", index + 1));
        }
        // A comment speaks for the one entry below it.
        explained = is_comment;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexplained_crates_are_found() {
        let manifest = "[workspace]\nmembers = []\n[workspace.dependencies]\nshoal-wire = { path = \"x\" }\n# \
                        Errors.\nanyhow = \"1\"\n\
                        serde = \"1\" # JSON.\nrand = \"1\"\n\n[profile.dev]\ndebug = 1\n";
        assert_eq!(check(manifest), ["Cargo.toml:8: rand: say in a comment above it why this crate"]);
    }
}
