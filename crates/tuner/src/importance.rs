//! Which hyperparameters mattered: functional analysis of variance over a random forest (Hutter,
//! Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter Importance", ICML
//! 2014, section 3). Each tree says what share of the objective's variance over the whole space a
//! parameter explains by itself, all others averaged out exactly; the forest's mean is the answer.
//! The same history gives the same bits.

use crate::{Domain, History, Rng, Space, Value};

const TREES: u64 = 64;
/// Trials that one tree is grown from, at most.
const SAMPLE: usize = 1000;
const MIN_TRIALS: usize = 4;
const MIN_LEAF: usize = 2;
const MAX_DEPTH: usize = 24;
/// More choices than a set holds are taken for a range.
const MAX_CHOICES: usize = 64;

/// The part of a dimension that a leaf covers.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Of the unit interval.
    Interval(f64, f64),
    /// Choices as bits, and how many there are in all.
    Set(u64, u32),
}

impl Part {
    fn share(self) -> f64 {
        match self {
            Self::Interval(low, high) => high - low,
            Self::Set(bits, all) => f64::from(bits.count_ones()) / f64::from(all),
        }
    }
}

#[derive(Debug)]
struct Leaf {
    parts: Vec<Part>,
    value: f64,
}

#[derive(Debug, Clone)]
struct Point {
    /// By parameter: place in the unit interval, or the choice's number.
    place: Vec<f64>,
    value: f64,
}

/// By parameter, in the space's order: the share of the variance of an objective that it explains
/// alone, as parts of their sum (all add up to 1). None if fewer than four trials completed, or all
/// with the same value; where most are stopped early, what they reported at a resource that many
/// reached counts (of the first objective). Inactive parameters stand in the middle of their range.
/// Values far outside (above the third quartile by three times the distance between the quartiles)
/// count as that limit, so that one divergence does not drown the rest.
pub fn importance(space: &Space, history: &History, objective: usize) -> Option<Vec<f64>> {
    let whole: Vec<Part> = space.parameters().iter().map(|parameter| whole(&parameter.domain)).collect();
    let mut points: Vec<Point> = Vec::new();
    let resource = common_resource(history).filter(|_| objective == 0);
    for trial in history.trials() {
        let value = match resource {
            Some(resource) => trial.at(resource),
            None => trial.value().and_then(|_| trial.values.get(objective)).copied(),
        };
        let Some(value) = value.filter(|value| value.is_finite()) else { continue };
        let place = (0..whole.len()).map(|index| place(space, index, trial.config.0[index], whole[index])).collect();
        points.push(Point { place, value });
    }
    if points.len() < MIN_TRIALS {
        return None;
    }
    limit(&mut points);
    let mut shares = vec![0.0; whole.len()];
    let mut trees = 0.0;
    for tree in 0..TREES {
        let mut rng = Rng::new(0, tree);
        let sample: Vec<&Point> = (0..points.len().min(SAMPLE)).map(|_| &points[rng.index(points.len())]).collect();
        let mut leaves = Vec::new();
        grow(sample, whole.clone(), 0, &mut rng, &mut leaves);
        let mean: f64 = leaves.iter().map(|leaf| leaf.value * volume(leaf)).sum();
        let variance: f64 = leaves.iter().map(|leaf| (leaf.value - mean) * (leaf.value - mean) * volume(leaf)).sum();
        if variance > 0.0 {
            trees += 1.0;
            shares
                .iter_mut()
                .enumerate()
                .for_each(|(dimension, share)| *share += alone(&leaves, dimension, mean) / variance);
        }
    }
    let sum: f64 = shares.iter().sum();
    (trees > 0.0 && sum > 0.0).then(|| shares.iter().map(|share| share / sum).collect())
}

/// Where few trials come to their end, since they are stopped early: the greatest resource at which
/// a quarter of those that reported can be compared. None where trials that completed are as many.
fn common_resource(history: &History) -> Option<u32> {
    let completed = history.trials().iter().filter(|trial| trial.value().is_some()).count();
    let mut reached: Vec<u32> =
        history.trials().iter().map(crate::Trial::resource).filter(|&resource| resource > 0).collect();
    reached.sort_unstable_by(|one, other| other.cmp(one));
    let wanted = (reached.len() / 4).max(MIN_TRIALS);
    if completed >= wanted { None } else { reached.get(wanted - 1).copied() }
}

fn whole(domain: &Domain) -> Part {
    match domain {
        Domain::Categorical { values } if values.len() <= MAX_CHOICES => {
            Part::Set(u64::MAX >> (MAX_CHOICES - values.len()), u32::try_from(values.len()).unwrap_or(u32::MAX))
        }
        _ => Part::Interval(0.0, 1.0),
    }
}

fn place(space: &Space, index: usize, value: Option<Value>, whole: Part) -> f64 {
    match (value, whole) {
        (Some(value), Part::Interval(..)) => space.unit(index, value),
        (Some(value), Part::Set(..)) => value.number(),
        (None, Part::Interval(..)) => 0.5,
        (None, Part::Set(..)) => 0.0,
    }
}

fn limit(points: &mut [Point]) {
    let mut values: Vec<f64> = points.iter().map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[values.len() / 4], values[values.len() * 3 / 4]);
    let most = high + 3.0 * (high - low);
    if high > low {
        points.iter_mut().for_each(|point| point.value = point.value.min(most));
    }
}

fn volume(leaf: &Leaf) -> f64 {
    leaf.parts.iter().map(|part| part.share()).product()
}

/// A regression tree (CART): the split with the least sum of squares, over two thirds of the
/// dimensions.
fn grow(points: Vec<&Point>, parts: Vec<Part>, depth: usize, rng: &mut Rng, leaves: &mut Vec<Leaf>) {
    #[expect(clippy::cast_precision_loss, reason = "thousands of trials")]
    let mean = points.iter().map(|point| point.value).sum::<f64>() / points.len() as f64;
    let is_flat = points.iter().all(|point| point.value == points[0].value);
    let split = if is_flat || depth == MAX_DEPTH || points.len() < 2 * MIN_LEAF {
        None
    } else {
        best_split(&points, &parts, rng)
    };
    let Some((dimension, left_part, right_part)) = split else {
        leaves.push(Leaf { parts, value: mean });
        return;
    };
    let (left, right): (Vec<&Point>, Vec<&Point>) =
        points.into_iter().partition(|point| holds(left_part, point.place[dimension]));
    for (points, part) in [(left, left_part), (right, right_part)] {
        let mut parts = parts.clone();
        parts[dimension] = part;
        grow(points, parts, depth + 1, rng, leaves);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a choice")]
fn holds(part: Part, place: f64) -> bool {
    match part {
        Part::Interval(_, high) => place < high,
        Part::Set(bits, _) => bits >> (place as u32) & 1 == 1,
    }
}

fn best_split(points: &[&Point], parts: &[Part], rng: &mut Rng) -> Option<(usize, Part, Part)> {
    let mut dimensions: Vec<usize> = (0..parts.len()).collect();
    rng.shuffle(&mut dimensions);
    let looked_at = (2 * parts.len()).div_ceil(3);
    let mut best: Option<(f64, usize, Part, Part)> = None;
    for (count, &dimension) in dimensions.iter().enumerate() {
        // Beyond its two thirds a tree looks on only until it finds any split.
        if count >= looked_at && best.is_some() {
            break;
        }
        let found = match parts[dimension] {
            Part::Interval(low, high) => split_interval(points, dimension, low, high),
            Part::Set(bits, all) => split_set(points, dimension, bits, all),
        };
        if let Some((gain, left, right)) = found
            && best.as_ref().is_none_or(|best| gain > best.0)
        {
            best = Some((gain, dimension, left, right));
        }
    }
    best.map(|(_, dimension, left, right)| (dimension, left, right))
}

/// Cuts a sequence of points in two: the number on the left with the greatest gain, where a cut is
/// allowed.
fn best_cut(sorted: &[&Point], may_cut: impl Fn(usize) -> bool) -> Option<(f64, usize)> {
    let total: f64 = sorted.iter().map(|point| point.value).sum();
    let (mut left, mut best) = (0.0, None);
    for cut in 1..sorted.len() {
        left += sorted[cut - 1].value;
        if cut < MIN_LEAF || sorted.len() - cut < MIN_LEAF || !may_cut(cut) {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "thousands of trials")]
        let (few, rest) = (cut as f64, (sorted.len() - cut) as f64);
        // What the sum of squares falls by, but for a constant.
        let gain = left * left / few + (total - left) * (total - left) / rest;
        if best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, cut));
        }
    }
    best
}

fn split_interval(points: &[&Point], dimension: usize, low: f64, high: f64) -> Option<(f64, Part, Part)> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|one, other| one.place[dimension].total_cmp(&other.place[dimension]));
    let (gain, cut) = best_cut(&sorted, |cut| sorted[cut - 1].place[dimension] < sorted[cut].place[dimension])?;
    let at = f64::midpoint(sorted[cut - 1].place[dimension], sorted[cut].place[dimension]);
    (low < at && at < high && sorted[cut - 1].place[dimension] < at).then_some((
        gain,
        Part::Interval(low, at),
        Part::Interval(at, high),
    ))
}

/// Choices in the order of their mean value: the best subset is a beginning of that order (Breiman
/// et al., "Classification and Regression Trees", 1984).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a choice")]
fn split_set(points: &[&Point], dimension: usize, bits: u64, all: u32) -> Option<(f64, Part, Part)> {
    let mut sums = vec![(0.0, 0.0); all as usize];
    for point in points {
        let (sum, count) = &mut sums[point.place[dimension] as usize];
        *sum += point.value;
        *count += 1.0;
    }
    let mean = |point: &Point| {
        let (sum, count) = sums[point.place[dimension] as usize];
        sum / count
    };
    let mut sorted = points.to_vec();
    sorted.sort_by(|one, other| {
        mean(one).total_cmp(&mean(other)).then_with(|| one.place[dimension].total_cmp(&other.place[dimension]))
    });
    let (gain, cut) = best_cut(&sorted, |cut| sorted[cut - 1].place[dimension] != sorted[cut].place[dimension])?;
    let right = sorted[cut..].iter().fold(0, |set, point| set | 1_u64 << point.place[dimension] as u32);
    Some((gain, Part::Set(bits & !right, all), Part::Set(right, all)))
}

/// The variance of the tree's mean over all other dimensions.
fn alone(leaves: &[Leaf], dimension: usize, mean: f64) -> f64 {
    let height = |leaf: &Leaf| leaf.value * volume(leaf) / leaf.parts[dimension].share();
    if let Part::Set(_, all) = leaves[0].parts[dimension] {
        let level = |choice: u32| -> f64 {
            let covers = |leaf: &&Leaf| matches!(leaf.parts[dimension], Part::Set(bits, _) if bits >> choice & 1 == 1);
            leaves.iter().filter(covers).map(height).sum()
        };
        return (0..all).map(|choice| (level(choice) - mean) * (level(choice) - mean)).sum::<f64>() / f64::from(all);
    }
    // Steps up and down at the leaves' ends, then the area of the squared distance.
    let mut steps: Vec<(f64, f64)> = Vec::with_capacity(2 * leaves.len());
    for leaf in leaves {
        if let Part::Interval(low, high) = leaf.parts[dimension] {
            steps.extend([(low, height(leaf)), (high, -height(leaf))]);
        }
    }
    steps.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut level, mut before, mut area) = (0.0, 0.0, 0.0);
    for (at, step) in steps {
        area += (at - before) * (level - mean) * (level - mean);
        (level, before) = (level + step, at);
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, Outcome, Study, StudySpec};

    fn study(space: &str, trials: usize, value: impl Fn(&Space, &crate::Config) -> f64) -> Study {
        let mut study = Study::new(StudySpec::random(serde_json::from_str(space).unwrap(), 5)).unwrap();
        for _ in 0..trials {
            let Ask::Start(start) = study.ask() else { panic!() };
            let value = value(study.space(), &start.config);
            study.end(start.trial, Outcome::Completed { values: vec![value] });
        }
        study
    }

    const SPACE: &str = r#"[{"name":"x","type":"continuous","min":0,"max":1},{"name":"y","type":"continuous","min":1e-4,"max":1,"scaling":"Logarithmic"},
        {"name":"c","type":"categorical","values":["p","q","r"]},{"name":"idle","type":"integer","min":1,"max":9}]"#;

    /// x explains 1/12, y (its exponent) 1/3 of that, c: {0, 0, 0.5} a variance of 1/18; together
    /// 0.1667.
    #[test]
    fn shares_are_those_of_an_additive_function() {
        let study = study(SPACE, 300, |space, config| {
            let number = |name| space.number(config, name).unwrap();
            number("x")
                + (number("y").log10() + 4.0) / 4.0 / 3.0_f64.sqrt()
                + if number("c") == 2.0 { 0.5 } else { 0.0 }
        });
        let shares = importance(study.space(), study.history(), 0).unwrap();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        for (share, expected) in shares.iter().zip([0.500, 0.167, 0.333, 0.0]) {
            assert!((share - expected).abs() < 0.06, "{shares:?}");
        }
        assert_eq!(importance(study.space(), study.history(), 0), Some(shares));
    }

    #[test]
    fn one_divergence_does_not_drown_the_rest() {
        let study = study(SPACE, 60, |space, config| {
            let x = space.number(config, "x").unwrap();
            if space.number(config, "idle") == Some(3.0) && x > 0.9 { 1e12 } else { x }
        });
        let shares = importance(study.space(), study.history(), 0).unwrap();
        assert!(shares[0] > 0.7, "{shares:?}");
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let few = study(SPACE, 3, |space, config| space.number(config, "x").unwrap());
        let flat = study(SPACE, 30, |_, _| 1.0);
        let single = study(r#"[{"name":"x","type":"integer","min":2,"max":2}]"#, 30, |_, _| 1.0);
        for study in [few, flat, single] {
            assert_eq!(importance(study.space(), study.history(), 0), None);
        }
    }
}
