//! Prometheus's text format.

use std::fmt::Write as _;

/// What a family of samples is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A page under way. Families come one after the other, each with its samples.
#[derive(Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a family.
    pub(super) fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
    }

    /// A sample of the family that was begun.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{}{label}=\"{escaped}\"", if index == 0 { '{' } else { ',' }).expect("a string takes all");
        }
        let value = if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
        writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" }).expect("a string takes all");
    }

    /// A family of one gauge.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Gauge, help);
        self.sample(name, &[], value);
    }

    /// A family of one counter.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, Kind::Counter, help);
        self.sample(name, &[], value);
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.gauge("a", "What.", 0.5);
        text.sample("b", &[("x", "say \"hi\"\\\n"), ("y", "")], f64::INFINITY);
        assert_eq!(
            text.into_string(),
            "# HELP a What.\n# TYPE a gauge\na 0.5\nb{x=\"say \\\"hi\\\"\\\\\\n\",y=\"\"} +Inf\n"
        );
    }
}
