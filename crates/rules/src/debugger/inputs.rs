//! NLPSequenceRatio and CheckInputImages: what a model is fed with.

use std::collections::BTreeMap;

use super::{Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::Step;

/// Channels of images that are distinguished.
const MAX_CHANNELS: usize = 1024;
/// Tensors of images that are judged.
const MAX_TENSORS: usize = 1024;

pub(crate) static NLP_SEQUENCE_RATIO: Declaration = Declaration {
    name: "NLPSequenceRatio",
    summary: "A token, as that of padding, has too large a share of the input sequences.",
    parameters: &[
        Parameter {
            name: "tensor_regex",
            kind: Kind::Expressions,
            default: Some(".*embedding0_input_0"),
            doc: "Expressions for the names of input sequences.",
        },
        Parameter {
            name: "token_values",
            kind: Kind::Numbers,
            default: Some("0"),
            doc: "The tokens that are counted.",
        },
        Parameter {
            name: "token_thresholds_percent",
            kind: Kind::Numbers,
            default: Some("50"),
            doc: "The highest percentage of each; the last one is that of all further tokens.",
        },
    ],
    collections: &["input_sequence"],
    make: Make::Tensors(|parameters| {
        let mut thresholds = parameters.numbers("token_thresholds_percent");
        let tokens = parameters.numbers("token_values");
        let last = thresholds.last().copied().unwrap_or(100.0);
        thresholds.resize(tokens.len(), last);
        Box::new(SequenceRatio {
            sequences: [Selection::new(vec!["input_sequence".to_owned()], &parameters.list("tensor_regex"))],
            tokens: tokens.into_iter().zip(thresholds).collect(),
        })
    }),
};

pub(crate) static CHECK_INPUT_IMAGES: Declaration = Declaration {
    name: "CheckInputImages",
    summary: "The mean of a channel of the input images is far from zero.",
    parameters: &[
        Parameter {
            name: "threshold_mean",
            kind: POSITIVE,
            default: Some("0.2"),
            doc: "How far the mean of a channel may be from zero.",
        },
        Parameter {
            name: "threshold_samples",
            kind: COUNT,
            default: Some("500"),
            doc: "Images before anything is judged.",
        },
        Parameter {
            name: "regex",
            kind: Kind::Expressions,
            default: Some(".*hybridsequential0_input_0"),
            doc: "Expressions for the names of input images.",
        },
        Parameter {
            name: "channel",
            kind: Kind::Integer(0, 63),
            default: Some("1"),
            doc: "Which dimension, from 0, is that of the channels.",
        },
    ],
    collections: &["input_image"],
    make: Make::Tensors(|parameters| {
        Box::new(InputImages {
            images: [Selection::new(vec!["input_image".to_owned()], &parameters.list("regex"))],
            mean: parameters.number("threshold_mean"),
            samples: parameters.integer("threshold_samples"),
            channel: usize::try_from(parameters.integer("channel")).unwrap_or(usize::MAX),
            seen: BTreeMap::new(),
        })
    }),
};

#[derive(Debug)]
struct SequenceRatio {
    sequences: [Selection; 1],
    /// With the highest percentage of each.
    tokens: Vec<(f64, f64)>,
}

impl Rule for SequenceRatio {
    fn needs(&self) -> &[Selection] {
        &self.sequences
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.sequences[0]).find_map(|saved| {
            let tensor = saved.tensor.as_ref().filter(|tensor| !tensor.is_empty())?;
            let mut counts = vec![0_u64; self.tokens.len()];
            tensor
                .for_each(|value| {
                    for (count, (token, _)) in counts.iter_mut().zip(&self.tokens) {
                        *count += u64::from(value == *token);
                    }
                })
                .ok()?;
            counts.iter().zip(&self.tokens).find_map(|(count, (token, threshold))| {
                let percent = 100.0 * *count as f64 / tensor.len() as f64;
                (percent > *threshold).then(|| {
                    let text = format!(
                        "{} % of the tokens of {} are {token}, more than {} %. If that is padding, try batches of \
                         sequences of similar length, or a shorter longest length.",
                        Short(percent),
                        step.describe(saved),
                        Short(*threshold)
                    );
                    finding(step, saved, percent, text)
                })
            })
        })
    }
}

#[derive(Debug)]
struct InputImages {
    images: [Selection; 1],
    mean: f64,
    samples: u64,
    channel: usize,
    seen: BTreeMap<String, Images>,
}

/// Sums of the images of a tensor so far.
#[derive(Debug, Default)]
struct Images {
    images: u64,
    /// Of each channel, and the number of its pixels.
    sums: Vec<(f64, u64)>,
}

impl Rule for InputImages {
    fn needs(&self) -> &[Selection] {
        &self.images
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.images[0]).find_map(|saved| {
            let tensor = saved.tensor.as_ref().filter(|tensor| !tensor.is_empty())?;
            let size = |size: &u64| usize::try_from(*size).unwrap_or(usize::MAX);
            let channels = tensor.shape.get(self.channel).map(size).filter(|channels| *channels <= MAX_CHANNELS)?;
            let inner: usize = tensor.shape[self.channel + 1..].iter().map(size).product();
            if self.seen.len() >= MAX_TENSORS && !self.seen.contains_key(&saved.name) {
                return None;
            }
            let images = self.seen.entry(saved.name.clone()).or_default();
            images.images += tensor.shape[0];
            images.sums.resize(channels.max(images.sums.len()), (0.0, 0));
            let mut index = 0_usize;
            tensor
                .for_each(|value| {
                    let (sum, count) = &mut images.sums[index / inner % channels];
                    (*sum, *count) = (*sum + value, *count + 1);
                    index += 1;
                })
                .ok()?;
            let enough = images.images >= self.samples;
            images.sums.iter().enumerate().filter(|_| enough).find_map(|(channel, (sum, count))| {
                let mean = sum / *count as f64;
                (mean.abs() > self.mean).then(|| {
                    let text = format!(
                        "the mean of channel {channel} of {} images in {} is {}, farther from zero than {}. Subtract \
                         the mean of the data set from the images.",
                        images.images,
                        step.describe(saved),
                        Short(mean),
                        Short(self.mean)
                    );
                    finding(step, saved, mean, text)
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use shoal_contract::tensors::{Mode, Tensor};

    use crate::selection::Groups;
    use crate::step::Step;
    use crate::testing::{evaluation, findings};

    #[test]
    fn sequences_that_are_mostly_padding_are_found() {
        let judge = |values: &[f32], given: &[(&str, &str)]| {
            findings("NLPSequenceRatio", given, &[&[("enc_embedding0_input_0", values)]])
        };
        let found = judge(&[5.0, 0.0, 0.0, 0.0], &[]).unwrap();
        assert_eq!(found.value, 75.0);
        assert!(found.text.starts_with("75 % of the tokens of enc_embedding0_input_0 are 0, more than 50 %"));
        assert_eq!(judge(&[5.0, 6.0, 0.0, 0.0], &[]), None);
        let two = [("token_values", "3,0"), ("token_thresholds_percent", "20, 80")];
        assert!(judge(&[3.0, 5.0, 0.0, 0.0], &two).unwrap().text.contains("are 3, more than 20 %"));
        assert_eq!(judge(&[5.0, 0.0, 0.0, 0.0], &two), None);
    }

    #[test]
    fn images_that_are_not_centred_are_found() {
        let groups = Groups::default();
        let judge = |centre: f32, given: &[(&str, &str)]| {
            let mut evaluation = evaluation("CheckInputImages", given);
            (0..10).find_map(|number| {
                // A hundred images of two channels and two by two pixels.
                let pixel = |index: usize| if index / 4 % 2 == 1 { centre } else { 0.01 } + (index % 3) as f32 - 1.0;
                let values = Vec::from_iter((0..800).map(pixel));
                let tensor = Tensor::of_f32("hybridsequential0_input_0", &[100, 2, 2, 2], &values);
                evaluation.observe(&Step::new(&groups, (number, Mode::Train, number), [("worker_0", tensor)]))
            })
        };
        let found = judge(0.5, &[]).unwrap().finding.unwrap();
        assert_eq!(found.step, 4, "the fifth hundred");
        assert!(found.text.starts_with("the mean of channel 1 of 500 images in hybrid"), "{}", found.text);
        assert_eq!(judge(0.1, &[]), None);
        assert_eq!(judge(0.5, &[("channel", "7")]), None);
    }
}
