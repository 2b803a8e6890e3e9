//! Stored learning curves over a full grid of configurations.

use std::{collections::BTreeMap, io::Read as _};

use serde_json::Value as Json;
use shoal_tuner::{Config, Space, Value};

/// Learning curves, and a space whose configurations count as their nearest on the grid.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) space: Space,
    /// Values to reach.
    pub(crate) targets: Vec<f64>,
    /// No worse value counts in the mean incumbent.
    pub(crate) cap: f64,
    /// By parameter: values, ascending.
    grid: Vec<Vec<f64>>,
    is_log: Vec<bool>,
    /// By place on the grid: cost of an epoch, and values.
    rows: BTreeMap<Vec<usize>, (f64, Vec<f64>)>,
}

/// A bench's name, parameters in the order of the space, targets, cap.
type Bench = (&'static str, &'static str, [f64; 3], f64);

/// As `problems.py` and `run_mf.py` have it.
const DIGITS: Bench = (
    "digits",
    r#"[{"name":"eta","type":"continuous","min":0.01,"max":1.0,"scaling":"Logarithmic"},{"name":"max_depth","type":"integer","min":1,"max":9},
    {"name":"subsample","type":"continuous","min":0.3,"max":1.0},{"name":"colsample_bytree","type":"continuous","min":0.15,"max":1.0},
    {"name":"min_child_weight","type":"continuous","min":0.3,"max":12.0,"scaling":"Logarithmic"}]"#,
    [0.085, 0.078, 0.0715],
    0.5,
);

/// As `make_table.py` made it.
const NOISY_MNIST: Bench = (
    "noisy_mnist",
    r#"[{"name":"lr","type":"continuous","min":0.05,"max":1.6,"scaling":"Logarithmic"},
    {"name":"weight_decay","type":"continuous","min":1e-4,"max":0.03,"scaling":"Logarithmic"},{"name":"dropout","type":"continuous","min":0.0,"max":0.7},
    {"name":"width","type":"integer","min":12,"max":108,"scaling":"Logarithmic"},{"name":"batch","type":"integer","min":8,"max":128,"scaling":"Logarithmic"}]"#,
    NOISY_TARGETS,
    2.0,
);

/// The 21st, 9th and 3rd best of all values of the table.
const NOISY_TARGETS: [f64; 3] = [0.913, 0.898, 0.891];

impl Table {
    /// A table in JSON lines, packed by gzip if its name says so.
    pub(crate) fn read(path: &str) -> std::io::Result<Self> {
        let mut text = String::new();
        let file = std::fs::File::open(path)?;
        if path.ends_with(".gz") {
            flate2::read::GzDecoder::new(file).read_to_string(&mut text)?;
        } else {
            std::io::BufReader::new(file).read_to_string(&mut text)?;
        }
        let (name, space, targets, cap) = if path.contains("digits") { DIGITS } else { NOISY_MNIST };
        let space: Space = serde_json::from_str(space).expect("a space");
        let rows: Vec<Json> = text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
        let value = |row: &Json, name: &str| row["config"][name].as_f64().expect("a value");
        let grid: Vec<Vec<f64>> = space
            .parameters()
            .iter()
            .map(|parameter| {
                let mut values: Vec<f64> = rows.iter().map(|row| value(row, &parameter.name)).collect();
                values.sort_by(f64::total_cmp);
                values.dedup();
                values
            })
            .collect();
        let is_log = (0..grid.len()).map(|index| space.scaling(index) == shoal_tuner::Scaling::Logarithmic).collect();
        let place = |row: &Json| {
            let of = |(parameter, values): (&shoal_tuner::Parameter, &Vec<f64>)| {
                values.iter().position(|it| *it == value(row, &parameter.name)).expect("on the grid")
            };
            space.parameters().iter().zip(&grid).map(of).collect::<Vec<_>>()
        };
        let mut by_place: BTreeMap<Vec<usize>, (f64, Vec<f64>)> = rows
            .iter()
            .map(|row| {
                let curve =
                    row["curve"].as_array().expect("a curve").iter().map(|it| it.as_f64().expect("a number")).collect();
                (place(row), (row["cost"].as_f64().expect("a cost"), curve))
            })
            .collect();
        if name == "digits" {
            level_costs(&mut by_place);
        }
        Ok(Self { name, space, targets: targets.to_vec(), cap, grid, is_log, rows: by_place })
    }

    /// Cost of an epoch, and the values after each.
    pub(crate) fn row(&self, config: &Config) -> &(f64, Vec<f64>) {
        let place = |index: usize| {
            let scale = |value: f64| if self.is_log[index] { value.ln() } else { value };
            let asked = scale(config.0[index].map_or(0.0, Value::number));
            let distance = |place: &usize| (scale(self.grid[index][*place]) - asked).abs();
            (0..self.grid[index].len()).min_by(|one, other| distance(one).total_cmp(&distance(other))).expect("values")
        };
        &self.rows[&(0..self.grid.len()).map(place).collect::<Vec<_>>()]
    }

    pub(crate) fn epochs(&self) -> u32 {
        81
    }

    pub(crate) fn target_names(&self) -> String {
        self.targets.iter().map(|target| format!("t(<={target})")).collect::<Vec<_>>().join(" | ")
    }
}

/// The cost is the median over all configurations of the same depth, in units of the least: that
/// removes the machine's noise.
fn level_costs(rows: &mut BTreeMap<Vec<usize>, (f64, Vec<f64>)>) {
    let mut by_depth: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (place, (cost, _)) in &*rows {
        by_depth.entry(place[1]).or_default().push(*cost);
    }
    let medians: BTreeMap<usize, f64> = by_depth
        .into_iter()
        .map(|(depth, mut costs)| {
            costs.sort_by(f64::total_cmp);
            (depth, costs[costs.len() / 2])
        })
        .collect();
    let least = medians[&0];
    for (place, (cost, _)) in rows {
        *cost = medians[&place[1]] / least;
    }
}
