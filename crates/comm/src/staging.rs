//! How ranks of one host are to hand each other memory that is not registered, as the owner of a
//! group says it.

use crate::reduce::Stores;

/// What a stage holds: one step of a longer operation.
pub(crate) const STAGE: usize = 1 << 20;

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Order {
    /// The processor's kind.
    #[default]
    Auto,
    /// A trial, whatever the processor is.
    Measured,
    /// The owner.
    Fixed(Fixed),
}

/// What the owner said; what was left out is as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fixed {
    pub(crate) stage: Option<usize>,
    pub(crate) room: Option<usize>,
    pub(crate) writing: Option<Writing>,
    pub(crate) large: Option<Stores>,
}

/// How stages and results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Each rank times its own.
    Timed,
    Cached,
    Past,
}

impl Order {
    /// From `auto`, `measured`, or some of
    /// `stage=BYTES,room=BYTES,writes=timed|cached|past,large=cached|past`; an error says what it
    /// may be.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| {
            format!(
                "{part:?} is none of `auto`, `measured`, or a list of `stage=BYTES` (1024 to {STAGE}), `room=BYTES` (0 \
                 to {}), `writes=timed|cached|past` and \
                 `large=cached|past`",
                2 * STAGE
            )
        };
        match text {
            "auto" => return Ok(Self::Auto),
            "measured" => return Ok(Self::Measured),
            _ => {}
        }
        let mut fixed = Fixed::default();
        for part in text.split(',').map(str::trim) {
            let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
            let bytes = |least: usize, most: usize| {
                let bytes = value.parse().ok().filter(|bytes| (least..=most).contains(bytes));
                bytes.map(Some).ok_or_else(|| wrong(part))
            };
            match (name, value) {
                ("stage", _) => fixed.stage = bytes(1024, STAGE)?,
                ("room", _) => fixed.room = bytes(0, 2 * STAGE)?,
                ("writes", "timed") => fixed.writing = Some(Writing::Timed),
                ("writes", "cached") => fixed.writing = Some(Writing::Cached),
                ("writes", "past") => fixed.writing = Some(Writing::Past),
                ("large", "cached") => fixed.large = Some(Stores::Cached),
                ("large", "past") => fixed.large = Some(Stores::Streaming),
                _ => return Err(wrong(part)),
            }
        }
        Ok(Self::Fixed(fixed))
    }
}
