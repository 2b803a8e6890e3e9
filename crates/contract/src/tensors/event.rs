//! TensorFlow's `Event` with one saved tensor.

use super::protobuf::{Field, Fields, put_bytes, put_double, put_varint, text};
use super::{Mode, Tensor, TensorError};

/// Names of the plug-in data by which smdebug adds mode and step to a summary.
const MODE_STEP: &str = "mode_step";
const MODE: &str = "mode";

/// A tensor with the time and the step at which it was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Event<'a> {
    /// Seconds since 1970.
    pub wall_time: f64,
    /// Step over all modes.
    pub step: u64,
    /// Phase.
    pub mode: Mode,
    /// Step within the mode.
    pub mode_step: u64,
    /// What was saved.
    pub tensor: Tensor<'a>,
}

impl<'a> Event<'a> {
    /// Reads the content of a record; `None` where it holds no summary, as the first event of other
    /// writers' files.
    pub fn parse(content: &'a [u8]) -> Result<Option<Self>, TensorError> {
        let (mut wall_time, mut step, mut summary) = (0.0, 0, None);
        for field in Fields::new(content) {
            match field? {
                (1, Field::Fixed64(bits)) => wall_time = f64::from_bits(bits),
                (2, Field::Varint(value)) => step = value,
                (5, Field::Bytes(message)) => summary = Some(message),
                _ => {}
            }
        }
        let Some(summary) = summary else { return Ok(None) };
        let mut values = Vec::new();
        for field in Fields::new(summary) {
            if let (1, Field::Bytes(value)) = field? {
                values.push(value);
            }
        }
        let [value] = values[..] else {
            return Err(TensorError::Event(format!("a summary has {} values in place of one", values.len())));
        };
        Self::parse_value(wall_time, step, value).map(Some)
    }

    fn parse_value(wall_time: f64, step: u64, message: &'a [u8]) -> Result<Self, TensorError> {
        let (mut name, mut tensor, mut plugins) = ("", None, None);
        for field in Fields::new(message) {
            match field? {
                (1, Field::Bytes(bytes)) => name = text(bytes)?,
                (8, Field::Bytes(bytes)) => tensor = Some(bytes),
                (9, Field::Bytes(bytes)) => plugins = Some(bytes),
                _ => {}
            }
        }
        let Some(tensor) = tensor else {
            return Err(TensorError::Event(format!("the summary {name} is not a tensor")));
        };
        let (mode, mode_step) = parse_plugins(plugins.unwrap_or_default())?;
        let mode_step = mode_step.unwrap_or(step);
        let mode = mode.unwrap_or(Mode::Global);
        Ok(Self { wall_time, step, mode, mode_step, tensor: Tensor::parse(name, tensor)? })
    }

    /// The content of a record, byte for byte as smdebug writes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut tensor = Vec::with_capacity(self.tensor.bytes.len() + 64);
        self.tensor.write(&mut tensor);
        let mut plugins = Vec::new();
        for (name, content) in [(MODE_STEP, self.mode_step.to_string()), (MODE, self.mode.number().to_string())] {
            let mut plugin = Vec::new();
            put_bytes(&mut plugin, 1, name.as_bytes());
            put_bytes(&mut plugin, 2, content.as_bytes());
            put_bytes(&mut plugins, 1, &plugin);
        }
        let mut value = Vec::with_capacity(tensor.len() + 128);
        put_bytes(&mut value, 1, self.tensor.name.as_bytes());
        put_bytes(&mut value, 8, &tensor);
        put_bytes(&mut value, 9, &plugins);
        let mut summary = Vec::with_capacity(value.len() + 16);
        put_bytes(&mut summary, 1, &value);
        let mut event = Vec::with_capacity(summary.len() + 32);
        put_double(&mut event, 1, self.wall_time);
        if self.step > 0 {
            put_varint(&mut event, 2, self.step);
        }
        put_bytes(&mut event, 5, &summary);
        event
    }
}

/// Mode and its step, where the program sets them.
fn parse_plugins(message: &[u8]) -> Result<(Option<Mode>, Option<u64>), TensorError> {
    let (mut mode, mut mode_step) = (None, None);
    for field in Fields::new(message) {
        let (1, Field::Bytes(plugin)) = field? else { continue };
        let (mut name, mut content) = ("", &[][..]);
        for field in Fields::new(plugin) {
            match field? {
                (1, Field::Bytes(bytes)) => name = text(bytes)?,
                (2, Field::Bytes(bytes)) => content = bytes,
                _ => {}
            }
        }
        let invalid = || TensorError::Event(format!("{name} is \"{}\"", String::from_utf8_lossy(content)));
        match name {
            MODE => mode = Some(Mode::of_number(content).ok_or_else(invalid)?),
            MODE_STEP => mode_step = Some(text(content)?.parse().map_err(|_| invalid())?),
            _ => {}
        }
    }
    Ok((mode, mode_step))
}
