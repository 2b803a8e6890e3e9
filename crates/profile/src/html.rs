//! Text into HTML.

/// As text, and as an attribute's value.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// Puts each part in the place of its name, `{{name}}`; what is put in is not looked through.
#[must_use]
pub fn fill(template: &str, parts: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(template.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        let (before, after) = rest.split_at(at);
        filled.push_str(before);
        let (name, after) = after[2..].split_once("}}").unwrap_or((after, ""));
        filled.push_str(parts.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text));
        rest = after;
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_not_looked_through() {
        assert_eq!(fill("a{{x}}b{{y}}{{z}}c", &[("x", "{{y}}".to_owned()), ("y", "1".to_owned())]), "a{{y}}b1c");
        assert_eq!(escape("<a href='\"'>&"), "&lt;a href=&#39;&quot;&#39;&gt;&amp;");
    }
}
