//! Percent-encoding in addresses and headers (RFC 3986, section 2.1).

/// `None`: an escape is not complete, or the bytes are not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_encoded_text_is_refused() {
        for (text, expected) in
            [("a%2Fb%3d", Some("a/b=")), ("plain", Some("plain")), ("%2", None), ("%zz", None), ("%ff", None)]
        {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }
}
