//! UnchangedTensor: values that stay what they are.

use shoal_contract::tensors::Tensor;

use super::{COLLECTION_NAMES, Rule, TENSOR_REGEX, finding, selected, selection};
use crate::declaration::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{Kind, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::snapshots::{HeapBytes, Snapshots};
use crate::step::Step;

/// Values of a tensor that are compared one by one; of larger ones a hash is.
const MAX_COMPARED: usize = 1 << 16;

pub(crate) static UNCHANGED_TENSOR: Declaration = Declaration {
    name: "UnchangedTensor",
    summary: "A tensor is the same in several saved steps.",
    parameters: &[
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter {
            name: "num_steps",
            kind: Kind::Integer(2, 1_000_000_000),
            default: Some("3"),
            doc: "Saved steps in which it is the same.",
        },
        Parameter { name: "rtol", kind: POSITIVE, default: Some("1e-05"), doc: "Relative tolerance." },
        Parameter { name: "atol", kind: POSITIVE, default: Some("1e-08"), doc: "Absolute tolerance." },
        Parameter { name: "equal_nan", kind: Kind::Flag, default: Some("False"), doc: "Whether NaN equals NaN." },
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        Box::new(UnchangedTensor {
            tensors: [selection(parameters)],
            steps: parameters.integer("num_steps"),
            relative: parameters.number("rtol"),
            absolute: parameters.number("atol"),
            equal_nan: parameters.flag("equal_nan"),
            seen: Snapshots::default(),
        })
    }),
};

#[derive(Debug)]
struct UnchangedTensor {
    tensors: [Selection; 1],
    steps: u64,
    relative: f64,
    absolute: f64,
    equal_nan: bool,
    seen: Snapshots<Seen>,
}

#[derive(Debug)]
struct Seen {
    content: Content,
    /// Saved steps in which it was this.
    steps: u64,
    since: u64,
}

#[derive(Debug)]
enum Content {
    Values(Vec<f32>),
    Hash(u64),
}

impl HeapBytes for Seen {
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Values(values) => values.bytes(),
            Content::Hash(_) => 0,
        }
    }
}

impl Content {
    fn of(tensor: &Tensor<'_>) -> Option<Self> {
        if tensor.len() > MAX_COMPARED {
            return Some(Self::Hash(hash(&tensor.bytes)));
        }
        let mut values = Vec::with_capacity(tensor.len());
        tensor.for_each(|value| values.push(value as f32)).ok()?;
        Some(Self::Values(values))
    }
}

impl UnchangedTensor {
    fn is_same(&self, before: &Content, now: &Content) -> bool {
        let is_close = |(before, now): (&f32, &f32)| {
            let (before, now) = (f64::from(*before), f64::from(*now));
            now == before
                || (now - before).abs() <= self.absolute + self.relative * before.abs()
                || self.equal_nan && now.is_nan() && before.is_nan()
        };
        match (before, now) {
            (Content::Values(before), Content::Values(now)) => {
                before.len() == now.len() && before.iter().zip(now).all(is_close)
            }
            (Content::Hash(before), Content::Hash(now)) => before == now,
            _ => false,
        }
    }
}

impl Rule for UnchangedTensor {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let mut seen = std::mem::take(&mut self.seen);
        let found = selected(step, &self.tensors[0]).find_map(|saved| {
            let tensor = saved.tensor.as_ref().filter(|tensor| !tensor.is_empty())?;
            // Evaluation sees the weights of the last training step again.
            let key = format!("{}\n{}", step.mode.name(), saved.key());
            let content = Content::of(tensor)?;
            let (steps, since) = match seen.take(&key) {
                Some(before) if self.is_same(&before.content, &content) => (before.steps + 1, before.since),
                _ => (1, step.step),
            };
            seen.put(key, Seen { content, steps, since });
            (steps >= self.steps).then(|| {
                let text = format!(
                    "{} is the same in {steps} saved steps, from step {since} on. Check that the layer is trained \
                     (requires_grad, the optimizer's parameters) and that the learning rate is not zero.",
                    step.describe(saved)
                );
                finding(step, saved, steps as f64, text)
            })
        });
        self.seen = seen;
        found
    }
}

/// FNV-1a over words of eight bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks::<8>();
    let whole = words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    rest.iter().fold(mix(whole, bytes.len() as u64), |hash, byte| mix(hash, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_layer_that_is_not_trained_is_found() {
        let weights = [("collection_names", "weights")];
        let network = |frozen| Network::new(&[4, 16, 2], Activation::Tanh, 1.0, 4).frozen(frozen);
        let found = train(network(1), 0.05, 10, &mut evaluation("UnchangedTensor", &weights)).unwrap();
        assert_eq!((found.subject.as_str(), found.step), ("Net_fc0.weight", 2));
        assert!(found.text.contains("is the same in 3 saved steps, from step 0 on"), "{}", found.text);
        assert_eq!(train(network(0), 0.05, 30, &mut evaluation("UnchangedTensor", &weights)), None);
    }

    #[test]
    fn tolerances_and_nan() {
        let nan: &[(&str, &[f32])] = &[("w", &[1.0, f32::NAN])];
        assert_eq!(findings("UnchangedTensor", &[], &[nan; 5]), None);
        assert!(findings("UnchangedTensor", &[("equal_nan", "true")], &[nan; 5]).is_some());
        let drifting: &[&[(&str, &[f32])]] = &[&[("w", &[100.0])], &[("w", &[101.0])], &[("w", &[102.0])]];
        assert_eq!(findings("UnchangedTensor", &[], drifting), None);
        assert_eq!(findings("UnchangedTensor", &[("rtol", "0.02")], drifting).unwrap().value, 3.0);
        let two: &[&[(&str, &[f32])]] = &[&[("w", &[1.0])], &[("v", &[1.0])], &[("w", &[1.0])]];
        assert_eq!(findings("UnchangedTensor", &[("num_steps", "2")], two).unwrap().step, 2);
    }

    #[test]
    fn large_tensors_are_compared_by_a_hash() {
        let large =
            |last| Vec::from_iter((0..MAX_COMPARED + 1).map(|index| if index == MAX_COMPARED { last } else { 0.5 }));
        let (same, other) = (large(1.0_f32), large(1.0001));
        let found = findings("UnchangedTensor", &[], &[&[("w", &same)], &[("w", &same)], &[("w", &same)]]);
        assert!(found.is_some());
        assert_eq!(findings("UnchangedTensor", &[], &[&[("w", &same)], &[("w", &other)], &[("w", &same)]]), None);
        assert_ne!(hash(&[0; 8]), hash(&[0; 16]));
    }
}
