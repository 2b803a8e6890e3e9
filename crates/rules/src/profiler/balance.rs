//! LoadBalancing: GPUs that are used differently.

use std::collections::BTreeMap;

use super::{MAX_DEVICES, NO_GPU, Reading, SCAN_INTERVAL, START, SystemRule, finding};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{Kind, Parameter};

/// Bins of ten percent.
const BINS: usize = 10;
/// Readings of a GPU between two comparisons, which are of all pairs.
const INTERVAL: u64 = 60;

pub(crate) static LOAD_BALANCING: Declaration = Declaration {
    name: "LoadBalancing",
    summary: "The utilisation of two GPUs is distributed differently.",
    parameters: &[
        Parameter {
            name: "threshold",
            kind: Kind::Number(0.0, 1.0),
            default: Some("0.5"),
            doc: "Highest distance of two GPUs' histograms of utilisation: the share of readings in other bins.",
        },
        START,
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(LoadBalancing {
            threshold: parameters.number("threshold"),
            first: parameters.integer("patience"),
            gpus: BTreeMap::new(),
            has_gpu: false,
        })
    }),
};

#[derive(Debug)]
struct LoadBalancing {
    threshold: f64,
    first: u64,
    /// Readings of each, by bin.
    gpus: BTreeMap<String, [u64; BINS]>,
    has_gpu: bool,
}

/// Total variation distance: 0 for the same, 1 for no bin in common.
fn distance(a: &[u64; BINS], b: &[u64; BINS]) -> f64 {
    let (all_a, all_b) = (a.iter().sum::<u64>() as f64, b.iter().sum::<u64>() as f64);
    a.iter().zip(b).map(|(a, b)| (*a as f64 / all_a - *b as f64 / all_b).abs()).sum::<f64>() / 2.0
}

fn mean(bins: &[u64; BINS]) -> f64 {
    let all: u64 = bins.iter().sum();
    let sum: f64 = bins.iter().enumerate().map(|(bin, count)| (10 * bin + 5) as f64 * *count as f64).sum();
    sum / all as f64
}

impl SystemRule for LoadBalancing {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        let mut is_due = false;
        for (number, utilization) in reading.gpu.iter().enumerate() {
            self.has_gpu = true;
            let device = format!("GPU {number} of {}", reading.host);
            if self.gpus.len() >= MAX_DEVICES && !self.gpus.contains_key(&device) {
                continue;
            }
            let bins = self.gpus.entry(device).or_default();
            bins[((utilization / 10.0).max(0.0) as usize).min(BINS - 1)] += 1;
            let seen: u64 = bins.iter().sum();
            is_due = seen >= self.first && (seen - self.first).is_multiple_of(INTERVAL);
        }
        if !is_due {
            return None;
        }
        let enough = Vec::from_iter(self.gpus.iter().filter(|(_, bins)| bins.iter().sum::<u64>() >= self.first));
        // The least used against all others: who differs most differs from it, or it from them.
        let (low, low_bins) = enough.iter().min_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)))?;
        let (high, high_bins, far) = enough
            .iter()
            .map(|(device, bins)| (device, bins, distance(low_bins, bins)))
            .max_by(|(.., a), (.., b)| a.total_cmp(b))?;
        (far > self.threshold).then(|| {
            let text = format!(
                "{low} has a utilisation of about {} %, {high} of {} %: the distance of their histograms is {}, above \
                 {}. Check that each has as many samples and layers, and that one does not wait for another.",
                Short(mean(low_bins)),
                Short(mean(high_bins)),
                Short(far),
                Short(self.threshold)
            );
            finding((*low).clone(), far, text)
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.has_gpu { Ok(String::new()) } else { Err(NO_GPU.to_owned()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::judge;
    use super::*;

    #[test]
    fn a_gpu_that_idles_next_to_others_is_found() {
        let reading = |low: f64| {
            move |second: u64| {
                let shake = (second % 20) as f64;
                Reading { gpu: vec![75.0 + shake, low + shake, 75.0 + shake], ..Reading::default() }
            }
        };
        let given = [("patience", "100")];
        let found = judge("LoadBalancing", &given, 500, reading(20.0)).unwrap().unwrap();
        assert_eq!((found.subject.as_str(), found.value), ("GPU 1 of algo-1", 1.0));
        assert!(found.text.contains("GPU 1 of algo-1 has a utilisation of about 30 %"), "{}", found.text);
        assert_eq!(judge("LoadBalancing", &given, 500, reading(74.0)), Ok(None));
        assert!(judge("LoadBalancing", &given, 10, |_| Reading::default()).is_err());
    }
}
