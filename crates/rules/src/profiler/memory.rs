//! GPUMemoryIncrease: memory of GPUs that grows.

use super::window::Windows;
use super::{NO_GPU, Reading, SCAN_INTERVAL, START, SystemRule, finding, window};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{Kind, Parameter};

pub(crate) static GPU_MEMORY_INCREASE: Declaration = Declaration {
    name: "GPUMemoryIncrease",
    summary: "The memory of a GPU grows from one window of readings to the next.",
    parameters: &[
        Parameter {
            name: "increase",
            kind: Kind::Number(f64::MIN_POSITIVE, 100.0),
            default: Some("5"),
            doc: "Points of percent by which the average may grow.",
        },
        START,
        window("10"),
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(MemoryIncrease {
            increase: parameters.number("increase"),
            first: parameters.integer("patience"),
            window: usize::try_from(parameters.integer("window")).unwrap_or(1),
            gpus: Windows::default(),
        })
    }),
};

#[derive(Debug)]
struct MemoryIncrease {
    increase: f64,
    first: u64,
    window: usize,
    gpus: Windows,
}

impl SystemRule for MemoryIncrease {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        reading.gpu_memory.iter().enumerate().find_map(|(number, memory)| {
            let device = format!("GPU {number} of {}", reading.host);
            let size = self.window;
            let window = self.gpus.of(&device)?;
            window.push(*memory, 2 * size);
            if window.seen < self.first || window.values.len() < 2 * size {
                return None;
            }
            let (before, now) = (window.mean(0..size), window.mean(size..2 * size));
            (now - before > self.increase).then(|| {
                let text = format!(
                    "the memory of {device} grew from {} % to {} % on average of {size} readings each, by more than \
                     {} points. Check for tensors that are kept over steps (losses without .item(), growing lists), \
                     and for batches of different size.",
                    Short(before),
                    Short(now),
                    Short(self.increase)
                );
                finding(device.clone(), now - before, text)
            })
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.gpus.is_empty() { Err(NO_GPU.to_owned()) } else { Ok(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::judge;
    use super::*;

    #[test]
    fn memory_that_grows_is_found_and_steady_memory_is_not() {
        let given = [("patience", "50")];
        let reading = |memory: f64| Reading { gpu: vec![50.0], gpu_memory: vec![30.0, memory], ..Reading::default() };
        let leak = |second: u64| reading(20.0 + 0.6 * second as f64);
        let found = judge("GPUMemoryIncrease", &given, 100, leak).unwrap().unwrap();
        assert_eq!((found.subject.as_str(), Short(found.value).to_string()), ("GPU 1 of algo-1", "6".to_owned()));
        assert!(found.text.contains("grew from 40.7 % to 46.7 % on average of 10 readings"), "{}", found.text);
        let start = |second: u64| reading(if second < 5 { 0.0 } else { 70.0 });
        assert_eq!(judge("GPUMemoryIncrease", &given, 100, start), Ok(None), "it is full before the first look");
    }
}
