//! Horovod's environment variables, as far as they apply here.

use std::time::Duration;

use crate::Error;

/// The engine's settings. Those that must be equal on all ranks are rank 0's.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How long a submission may wait for others to share its cycle, unless a thread waits for it
    /// (`HOROVOD_CYCLE_TIME`, milliseconds; 1).
    pub cycle: Duration,
    /// Most bytes that are fused; 0: no fusion (`HOROVOD_FUSION_THRESHOLD`, 128 MiB).
    pub fusion: usize,
    /// How many operations are cached, to be announced by a number (`HOROVOD_CACHE_CAPACITY`, 8192;
    /// 0: none).
    pub cache: usize,
    /// Age at which an operation that not all ranks have submitted is reported as stalled
    /// (`HOROVOD_STALL_CHECK_TIME_SECONDS`, 60; `HOROVOD_STALL_CHECK_DISABLE`).
    pub stall: Option<Duration>,
    /// Age at which such an operation fails, and the engine with it
    /// (`HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`, 0: never).
    pub stall_shutdown: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cycle: Duration::from_millis(1),
            fusion: 128 << 20,
            cache: 8192,
            stall: Some(Duration::from_secs(60)),
            stall_shutdown: None,
        }
    }
}

impl Settings {
    /// From a table of variables.
    ///
    /// # Errors
    /// [`Error::Config`]: one is no number.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let default = Self::default();
        let text = |name: &str| lookup(name).map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
        let number = |name: &str, otherwise: f64| match text(name) {
            None => Ok(otherwise),
            Some(it) => it
                .parse::<f64>()
                .ok()
                .filter(|it| (0.0..1e15).contains(it))
                .ok_or_else(|| Error::config(format!("{name} is {it:?}: give a number from 0 up"))),
        };
        let seconds = |name: &str, otherwise: f64| {
            number(name, otherwise).map(|it| Some(Duration::from_secs_f64(it.min(1e9))).filter(|it| !it.is_zero()))
        };
        let disabled = text("HOROVOD_STALL_CHECK_DISABLE").is_some_and(|it| it != "0");
        Ok(Self {
            cycle: Duration::from_secs_f64(number("HOROVOD_CYCLE_TIME", 1.0)?.min(1e6) / 1e3),
            fusion: number("HOROVOD_FUSION_THRESHOLD", default.fusion as f64)? as usize,
            cache: number("HOROVOD_CACHE_CAPACITY", default.cache as f64)?.min(1e6) as usize,
            stall: if disabled { None } else { seconds("HOROVOD_STALL_CHECK_TIME_SECONDS", 60.0)? },
            stall_shutdown: if disabled { None } else { seconds("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0.0)? },
        })
    }

    /// Those that must be equal on all ranks.
    pub(super) fn common(&self) -> [u64; 2] {
        [self.fusion as u64, self.cache as u64]
    }

    /// These settings with rank 0's common ones.
    pub(super) fn with_common(mut self, common: [u64; 2]) -> Self {
        (self.fusion, self.cache) = (common[0] as usize, common[1] as usize);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_horovod_is_read() {
        let read =
            |name: &'static str, value: &'static str| Settings::read(&move |it| (it == name).then(|| value.to_owned()));
        assert_eq!(read("NOTHING", "").unwrap(), Settings::default());
        assert_eq!(read("HOROVOD_CYCLE_TIME", "0.5").unwrap().cycle, Duration::from_micros(500));
        assert_eq!(read("HOROVOD_STALL_CHECK_DISABLE", "1").unwrap().stall, None);
        assert_eq!(
            read("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "5").unwrap().stall_shutdown,
            Some(Duration::from_secs(5))
        );
        let error = read("HOROVOD_FUSION_THRESHOLD", "much").unwrap_err().to_string();
        assert!(error.contains("HOROVOD_FUSION_THRESHOLD is \"much\""), "{error}");
    }
}
