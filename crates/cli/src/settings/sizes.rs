//! Sizes in bytes as people write them.

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// `8GiB`, `512 MiB`, `1.5GiB` or plain bytes.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    for (unit, factor) in UNITS {
        if let Some(number) = text.strip_suffix(unit) {
            let number: f64 = number.trim().parse().ok()?;
            let bytes = number * factor as f64;
            return (bytes.is_finite() && (1.0..1e18).contains(&bytes)).then_some(bytes as u64);
        }
    }
    text.parse().ok().filter(|bytes| *bytes > 0)
}

/// The shortest of those that says the same number.
pub(super) fn bytes_text(bytes: u64) -> String {
    for (unit, factor) in UNITS {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    bytes.to_string()
}

/// For people, who do not count bytes: `22.9 GiB`.
pub fn readable(bytes: u64) -> String {
    let (unit, factor) = UNITS.into_iter().find(|(_, factor)| bytes >= *factor).unwrap_or(("bytes", 1));
    format!("{:.1} {unit}", bytes as f64 / factor as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("8GiB", Some(8 << 30)),
            ("1.5 GiB", Some(3 << 29)),
            ("512MiB", Some(512 << 20)),
            ("1024", Some(1024)),
            ("0", None),
            ("-1GiB", None),
            ("8GB", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        for bytes_number in [1, 1 << 10, 3 << 29, (1 << 40) + 1] {
            assert_eq!(bytes(&bytes_text(bytes_number)), Some(bytes_number));
        }
        assert_eq!([readable(3 << 29), readable(7)], ["1.5 GiB", "7.0 bytes"]);
    }
}
