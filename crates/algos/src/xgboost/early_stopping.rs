//! Ends a training whose watched metric no longer improves, as XGBoost's own callback does.

/// Follows one metric.
#[derive(Debug, Clone)]
pub(super) struct EarlyStopping {
    patience: u32,
    maximize: bool,
    best: Option<(u32, f64)>,
    without_improvement: u32,
}

impl EarlyStopping {
    /// Stops after `patience` rounds without improvement.
    pub(super) fn new(patience: u32, maximize: bool) -> Self {
        Self { patience, maximize, best: None, without_improvement: 0 }
    }

    /// Takes the metric's value after `round`; true if the training is to end.
    pub(super) fn observe(&mut self, round: u32, value: f64) -> bool {
        let improved = match self.best {
            None => true,
            Some((_, best)) => {
                if self.maximize {
                    value > best
                } else {
                    value < best
                }
            }
        };
        if improved {
            self.best = Some((round, value));
            self.without_improvement = 0;
        } else {
            self.without_improvement += 1;
        }
        self.is_over()
    }

    /// Whether the patience is at its end.
    pub(super) fn is_over(&self) -> bool {
        self.without_improvement >= self.patience
    }

    /// How it stands, exactly, for [`Self::restore`].
    pub(super) fn to_text(&self) -> String {
        let (round, value) = self.best.unwrap_or((u32::MAX, f64::NAN));
        format!("{round} {:016x} {}", value.to_bits(), self.without_improvement)
    }

    /// Goes on from there; a text that is none changes nothing.
    pub(super) fn restore(&mut self, text: &str) {
        let mut words = text.split(' ');
        let mut read = || {
            let round: u32 = words.next()?.parse().ok()?;
            let value = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((round, f64::from_bits(value), words.next()?.parse().ok()?))
        };
        if let Some((round, value, without_improvement)) = read() {
            self.best = (round != u32::MAX).then_some((round, value));
            self.without_improvement = without_improvement;
        }
    }

    /// The best round so far and its value.
    pub(super) fn best(&self) -> Option<(u32, f64)> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_after_the_given_rounds_without_improvement() {
        // Patience, maximize, values; expected: rounds run, best round.
        let cases: [(u32, bool, &[f64], usize, u32); 5] = [
            (2, false, &[3.0, 2.0, 2.0, 2.5, 1.0], 4, 1),
            (2, true, &[0.5, 0.6, 0.55, 0.7, 0.7, 0.7], 6, 3),
            (1, false, &[1.0, 1.0], 2, 0),
            (3, false, &[1.0, f64::NAN, f64::NAN, 0.5, 0.4], 5, 4),
            (9, true, &[0.5], 1, 0),
        ];
        for (patience, maximize, values, rounds, best) in cases {
            let mut stopping = EarlyStopping::new(patience, maximize);
            let mut observe = |(round, value): &(usize, &f64)| {
                // As if every round had been another process's.
                let text = stopping.to_text();
                stopping = EarlyStopping::new(patience, maximize);
                stopping.restore(&text);
                !stopping.observe(*round as u32, **value)
            };
            let ran = values.iter().enumerate().take_while(&mut observe).count();
            assert_eq!((ran + 1).min(values.len()), rounds, "{values:?}");
            assert_eq!(stopping.best().map(|(round, _)| round), Some(best), "{values:?}");
        }
    }
}
