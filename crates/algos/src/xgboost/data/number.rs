//! Numbers in text, fast.

/// Powers of ten that a double holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The number that all of `text` spells, rounded to the nearest double and then to a single, as
/// numpy and pandas do it. `nan` in any case is a number, infinities are too; an empty text is not.
pub(super) fn parse(text: &[u8]) -> Option<f32> {
    match short_decimal(text) {
        Some(value) => Some(value as f32),
        None => std::str::from_utf8(text).ok()?.parse::<f64>().ok().map(|value| value as f32),
    }
}

/// Decimals whose digits fit a double's mantissa and whose power of ten is exact: one division or
/// product is then correctly rounded (Clinger, How to Read Floating Point Numbers Accurately, 1990,
/// section 4). `None` leaves the text to the general parser.
fn short_decimal(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut mantissa, mut count, mut decimals) = (0_u64, 0, None);
    for &byte in digits {
        match byte {
            b'0'..=b'9' => {
                mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                count += 1;
                decimals = decimals.map(|places| places + 1);
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
    }
    // 18 digits cannot have overflowed.
    if count == 0 || count > 18 || mantissa > 1 << 53 {
        return None;
    }
    let value = mantissa as f64 / EXACT_POWERS[decimals.unwrap_or(0)];
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let texts = [
            "0",
            "-0",
            "1",
            "+1",
            "-1.5",
            ".5",
            "5.",
            "0.1",
            "3.4028235e38",
            "1e-45",
            "1e400",
            "-1E5",
            "123456789012345678",
            "9007199254740993",
            "12345678901234567890123",
            "0.000000000000000000000001",
            "0.30000000000000004",
            "inf",
            "-Infinity",
            "nan",
            "NaN",
            "16777217",
            "1234.56789",
            "99999999999999999.9",
        ];
        for text in texts {
            let expected = text.parse::<f64>().expect(text) as f32;
            let got = parse(text.as_bytes()).expect(text);
            assert!(
                got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()),
                "{text}: {got} is not {expected}"
            );
        }
    }

    #[test]
    fn other_texts_are_not_numbers() {
        for text in ["", "-", ".", "1,5", "1.2.3", "abc", "1 ", " 1", "0x10", "--1", "1e", "\u{fc}"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
