//! Problems whose values stand in a table of measured ones (data/hpo_tables; DATA.md there says
//! where they are from).
//!
//! The objective is the mean over the table's seeds, of accuracies their distance to 1; lists of
//! numbers are integers (index into the list), lists of names are categorical.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use shoal_tuner::{Config, Domain, Parameter, Scaling, Space};

use crate::problems::Problem;

/// Names of the tables.
pub(crate) const NAMES: [&str; 7] = [
    "hpobench_credit_g",
    "hpobench_segment",
    "hpolib_protein_structure",
    "nasbench201_cifar10",
    "hpobench_australian",
    "hpobench_car",
    "hpolib_slice_localization",
];

/// The problem of a table's name in a directory.
pub(crate) fn table(directory: &Path, name: &str) -> Result<Problem, Box<dyn std::error::Error>> {
    let spaces: Value = serde_json::from_str(&std::fs::read_to_string(directory.join("search_spaces.json"))?)?;
    let kind = name.split('_').next().unwrap_or(name);
    let lists = spaces["spaces"][kind].as_object().ok_or("no such table")?;
    let parameter = |(name, list): (&String, &Value)| {
        let list = list.as_array().cloned().unwrap_or_default();
        let domain = if list[0].is_string() {
            Domain::Categorical { values: list.iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect() }
        } else {
            Domain::Integer { min: 0, max: list.len() as i64 - 1, scaling: Scaling::Linear }
        };
        Parameter { name: name.clone(), domain, condition: None }
    };
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(directory.join(format!("{name}.csv.gz")))?)
        .read_to_string(&mut text)?;
    let mut values = BTreeMap::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split(',');
        let key = fields.next().unwrap_or_default().to_owned();
        let seeds: Vec<f64> = fields.filter(|field| !field.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        let mean = seeds.iter().sum::<f64>() / seeds.len() as f64;
        values.insert(
            key,
            match kind {
                "hpolib" => mean,
                "nasbench201" => 1.0 - mean / 100.0,
                _ => 1.0 - mean,
            },
        );
    }
    let least = values.values().copied().fold(f64::INFINITY, f64::min);
    let key = |config: &Config| {
        config.0.iter().map(|value| value.map_or(0.0, |value| value.number()).to_string()).collect::<String>()
    };
    Ok(Problem {
        space: Space::new(lists.iter().map(parameter).collect())?,
        least,
        value: Box::new(move |config: &Config| values[&key(config)]),
    })
}
