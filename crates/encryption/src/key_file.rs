//! Files with keys of the owner: 32 bytes on each line, in hexadecimal or base64. The first key
//! wraps, all unwrap: a key is rotated by a new first line.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::data_key::KEY_BYTES;
use crate::wrapping::WrappingKey;

/// Bytes of a file that are read at most.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The keys of a file, in its order.
///
/// # Errors
/// Why the file is refused, and what to do.
pub(crate) fn read(path: &Path) -> Result<Vec<WrappingKey>, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown} cannot be opened: {error}"))?;
    let found = file.metadata().map_err(|error| format!("{shown}: {error}"))?;
    if found.permissions().mode() & 0o007 != 0 {
        return Err(format!("every user of this machine has access to {shown}: run chmod 600 {shown}"));
    }
    let mut text = Zeroizing::new(String::new());
    let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| format!("{shown} cannot be read as text: {error}"))?;
    parse(&text).map_err(|why| format!("{shown}: {why}"))
}

fn parse(text: &str) -> Result<Vec<WrappingKey>, String> {
    const MAKE: &str = "openssl rand -hex 32 makes one";
    let mut keys = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bytes = if line.len() == 2 * KEY_BYTES {
            hex_simd::decode_to_vec(line).ok()
        } else {
            base64_simd::STANDARD.decode_to_vec(line).ok()
        };
        let bytes = Zeroizing::new(bytes.unwrap_or_default());
        let Ok(key) = <&[u8; KEY_BYTES]>::try_from(bytes.as_slice()) else {
            return Err(format!("line {number} is not a key of 32 bytes in hexadecimal or base64; {MAKE}"));
        };
        keys.push(WrappingKey::new(key));
    }
    if keys.is_empty() { Err(format!("there is no key in it; {MAKE}")) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;
    use crate::DataKey;

    #[test]
    fn keys_are_read_in_both_forms_and_other_lines_are_refused() {
        let (hex, base64) = ("0b".repeat(32), base64_simd::STANDARD.encode_to_string([12; 32]));
        let keys = parse(&format!("# new\n{hex}\n\n  {base64}\n")).unwrap();
        let data = DataKey::random().unwrap();
        for (key, byte) in keys.iter().zip([11, 12]) {
            let wrapped = key.wrap(&data, b"").unwrap();
            assert!(WrappingKey::new(&[byte; 32]).unwrap(&wrapped, b"").is_some());
        }
        assert_eq!(keys.len(), 2);
        for (text, expected) in [
            ("", "no key"),
            ("# only a comment\n", "no key"),
            ("0b0b\n", "line 1"),
            (&*format!("{hex}\n{hex}0b\n"), "line 2"),
            (&*"zz".repeat(32), "line 1"),
        ] {
            let error = parse(text).map(|keys| keys.len()).unwrap_err();
            assert!(error.contains(expected) && error.contains("openssl rand"), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_file_that_every_user_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("team.key");
        assert!(read(&path).unwrap_err().contains("cannot be opened"));
        fs::write(&path, "0b".repeat(32)).unwrap();
        for (mode, is_read) in [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let result = read(&path).map(|keys| keys.len());
            assert_eq!(result.is_ok(), is_read, "{mode:o}: {result:?}");
            assert!(result.is_ok_and(|keys| keys == 1) || !is_read);
        }
    }
}
