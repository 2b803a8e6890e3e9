//! Log lines as HTML: everything escaped, terminal colours as classes, progress bars as their last
//! state.
//!
//! Logs hold control characters as `#` and three octal digits, as SageMaker's do. That is
//! ambiguous: `issue #033` is no colour. So they count as what they stand for only where a person
//! would not write them.

use std::{borrow::Cow, fmt::Write};

/// One line. The markup made here is `<i class="...">` and `</i>` alone.
pub(crate) fn line_html(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let mut style = Style::default();
    let line = controls(line);
    let mut rest = last_state(&line);
    while let Some(at) = rest.find('\u{1b}') {
        style.put(&mut out, &rest[..at]);
        rest = after_escape(&rest[at + 1..], &mut style);
    }
    style.put(&mut out, rest);
    out
}

/// One line without colours and progress, to search in.
pub(crate) fn line_text(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let line = controls(line);
    let mut rest = last_state(&line);
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&rest[..at]);
        rest = after_escape(&rest[at + 1..], &mut Style::default());
    }
    out.push_str(rest);
    out
}

/// Puts back the control characters that say something to us.
fn controls(line: &str) -> Cow<'_, str> {
    if !line.contains('#') {
        return Cow::Borrowed(line);
    }
    let many_returns = line.matches("#015").count() > 1;
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('#') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // `(#011)` and `see #011` are a person's.
        let apart = out.chars().next_back().is_some_and(|before| before == ' ' || before == '(');
        let after = rest.as_bytes().get(4);
        let control = match rest.get(1..4) {
            Some("033") if matches!(after, Some(b'[' | b']')) => Some('\u{1b}'),
            Some("015") if many_returns || !apart => Some('\r'),
            Some("011") if !apart => Some('\t'),
            Some("010") if !apart => Some('\u{8}'),
            _ => None,
        };
        out.push(control.unwrap_or('#'));
        rest = &rest[if control.is_some() { 4 } else { 1 }..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// A carriage return starts the line again.
fn last_state(line: &str) -> &str {
    line.trim_end_matches(['\r', '\n']).rsplit('\r').next().unwrap_or_default()
}

/// Reads one escape sequence; what it says of colours goes to `style`, everything else is dropped.
fn after_escape<'a>(rest: &'a str, style: &mut Style) -> &'a str {
    match rest.bytes().next() {
        Some(b'[') => {
            let Some(end) = rest[1..].find(|c: char| ('@'..='~').contains(&c)) else { return "" };
            if rest.as_bytes()[1 + end] == b'm' {
                style.set(&rest[1..=end]);
            }
            &rest[end + 2..]
        }
        // A title or a link: up to BEL or ST.
        Some(b']') => match (rest.find('\u{7}'), rest.find("\u{1b}\\")) {
            (Some(bell), st) if st.is_none_or(|st| bell < st) => &rest[bell + 1..],
            (_, Some(st)) => &rest[st + 2..],
            _ => "",
        },
        Some(_) => {
            let mut chars = rest.chars();
            chars.next();
            chars.as_str()
        }
        None => "",
    }
}

/// What holds for the text to come.
#[derive(Debug, Default)]
struct Style {
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
    /// 0 to 15, of the foreground; other colours of 256 or 16 million are shown as the nearest
    /// thing we have: none.
    colour: Option<u8>,
}

impl Style {
    /// The numbers of an SGR sequence.
    fn set(&mut self, numbers: &str) {
        let mut codes =
            numbers.split([';', ':']).map(|code| if code.is_empty() { Some(0) } else { code.parse::<u16>().ok() });
        while let Some(code) = codes.next() {
            match code {
                Some(0) => *self = Self::default(),
                Some(1) => self.bold = true,
                Some(2) => self.dim = true,
                Some(3) => self.italic = true,
                Some(4) => self.underlined = true,
                Some(22) => (self.bold, self.dim) = (false, false),
                Some(23) => self.italic = false,
                Some(24) => self.underlined = false,
                Some(code @ 30..=37) => self.colour = Some((code - 30) as u8),
                Some(code @ 90..=97) => self.colour = Some((code - 82) as u8),
                Some(39) => self.colour = None,
                // `38;5;n` and `38;2;r;g;b`, of foreground and background.
                Some(code @ (38 | 48)) => {
                    let operands = if codes.next() == Some(Some(5)) { 1 } else { 3 };
                    let first = codes.next().flatten();
                    codes.by_ref().take(operands - 1).for_each(drop);
                    if code == 38 {
                        self.colour = first.filter(|colour| operands == 1 && *colour < 16).map(|colour| colour as u8);
                    }
                }
                _ => {}
            }
        }
    }

    fn put(&self, out: &mut String, text: &str) {
        if text.is_empty() {
            return;
        }
        let flags = [(self.bold, "b"), (self.dim, "d"), (self.italic, "t"), (self.underlined, "u")];
        let mut classes: Vec<String> =
            flags.iter().filter(|(set, _)| *set).map(|(_, class)| (*class).to_owned()).collect();
        classes.extend(self.colour.map(|colour| format!("c{colour}")));
        if !classes.is_empty() {
            let _ = write!(out, "<i class=\"{}\">", classes.join(" "));
        }
        escape(out, text);
        if !classes.is_empty() {
            out.push_str("</i>");
        }
    }
}

fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' => out.push('\t'),
            // Other control characters say nothing on a page.
            control if control.is_control() => {}
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_harmless_html() {
        for (line, expected) in [
            ("plain", "plain"),
            (
                "<script>alert('x')</script> & \"y\"",
                "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;",
            ),
            ("\u{1b}[1;31mred\u{1b}[0m plain", "<i class=\"b c1\">red</i> plain"),
            (
                "\u{1b}[32mok \u{1b}[1mvery\u{1b}[22m so",
                "<i class=\"c2\">ok </i><i class=\"b c2\">very</i><i class=\"c2\"> so</i>",
            ),
            ("\u{1b}[38;5;9mbright\u{1b}[38;2;1;2;3mrgb\u{1b}[m.", "<i class=\"c9\">bright</i>rgb."),
            ("\u{1b}[31\"><script>m", "cript&gt;m"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("\u{1b}[2K\u{1b}[1Gmoved", "moved"),
            (" 10%|#  |\r 50%|## |\r100%|###|\r", "100%|###|"),
            ("bell\u{7} null\0 tab\t.", "bell null tab\t."),
            (
                "#033[31mred#033[0m #033 and issue #015, see (#011)",
                "<i class=\"c1\">red</i> #033 and issue #015, see (#011)",
            ),
            ("[0]#011train-auc:0.9", "[0]\ttrain-auc:0.9"),
            ("#015  0%|  |#015 50%|# |", " 50%|# |"),
            ("#", "#"),
            ("#\u{fc}\u{fc}#03", "#\u{fc}\u{fc}#03"),
            ("cut \u{1b}", "cut "),
            ("cut \u{1b}[3", "cut "),
            ("\u{1b}\u{fc}x", "x"),
        ] {
            assert_eq!(line_html(line), expected, "{line:?}");
            assert!(!line_html(line).contains("<s"), "{line:?}");
        }
        assert_eq!(line_text("\u{1b}[1;31mred\u{1b}[0m <plain>"), "red <plain>");
    }
}
