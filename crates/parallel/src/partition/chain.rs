//! A list of layers in contiguous stages, such that the slowest stage is as fast as can be, and the
//! others as even as can be: dynamic programming over all cuts (the linear partition problem;
//! PipeDream's, Narayanan et al. 2019, section 3.1, without replicas).

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one};

/// What a layer needs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Time, in any unit; 0 or more.
    pub cost: f64,
    /// Bytes that it takes on its rank.
    pub memory: u64,
}

/// The first layer of each of `stages` stages, ascending from 0, each stage with a layer or more
/// and at most `memory` bytes. The largest cost of a stage is the least possible; of the cuts with
/// that cost, it is the most even one (the least sum of squares).
///
/// # Errors
/// More stages than layers, a cost that is no cost, or layers that cannot be cut within `memory`;
/// then with the least that they can.
pub fn chain(layers: &[Layer], stages: usize, memory: Option<u64>) -> Result<Vec<usize>, Invalid> {
    at_least_one("stages", stages)?;
    if stages > layers.len() {
        return Err(Invalid::new("stages", format!("{stages} for {} layers: each stage needs one", layers.len()))
            .nearest([layers.len()]));
    }
    if let Some(wrong) = layers.iter().position(|layer| !(0.0..f64::INFINITY).contains(&layer.cost)) {
        return Err(Invalid::new("cost", format!("layer {wrong} costs {}", layers[wrong].cost)));
    }
    let limit = memory.unwrap_or(u64::MAX);
    let cost = |layer: &Layer| layer.cost;
    let Some((dearest, _)) = cut(layers, stages, cost, |_, bytes| bytes <= limit, f64::max) else {
        // The same problem with memory as the cost says what would suffice.
        let least = cut(layers, stages, |layer| layer.memory as f64, |_, _| true, f64::max)
            .map_or(f64::MAX, |(least, _)| least);
        let mut error = Invalid::new(
            "memory",
            format!("{limit} bytes hold no cut of {} layers into {stages} stages", layers.len()),
        );
        error.nearest = vec![least as u64];
        return Err(error);
    };
    // Of the cuts that are as good, the one with the least sum of squares. Sums of another order
    // may differ in their last digits.
    let is_as_good = |cost: f64, bytes: u64| bytes <= limit && cost <= dearest * (1.0 + 1e-12);
    let even = cut(layers, stages, cost, is_as_good, |before, own| before + own * own);
    even.map(|(_, first)| first).ok_or_else(|| Invalid::new("cost", "the costs are too large to be added"))
}

/// The cut whose stages, joined from the first to the last, cost the least, and that cost; `None`
/// where in no cut all stages fit. What does not fit does not fit with another layer either.
fn cut(
    layers: &[Layer],
    stages: usize,
    cost: impl Fn(&Layer) -> f64,
    fits: impl Fn(f64, u64) -> bool,
    join: impl Fn(f64, f64) -> f64,
) -> Option<(f64, Vec<usize>)> {
    let count = layers.len();
    // best[k][n]: what the first n layers cost in k + 1 stages; from[k][n]: where the last of these
    // begins.
    let mut best = vec![vec![f64::INFINITY; count + 1]; stages];
    let mut from = vec![vec![0; count + 1]; stages];
    for stage in 0..stages {
        // Layers for each stage before and after.
        for end in stage + 1..=count - (stages - 1 - stage) {
            let (mut sum, mut bytes) = (0.0, 0_u64);
            for begin in (stage..end).rev() {
                sum += cost(&layers[begin]);
                bytes = bytes.saturating_add(layers[begin].memory);
                if !fits(sum, bytes) {
                    break;
                }
                let before = match stage {
                    0 if begin == 0 => 0.0,
                    0 => continue,
                    _ => best[stage - 1][begin],
                };
                let joined = join(before, sum);
                if joined < best[stage][end] {
                    (best[stage][end], from[stage][end]) = (joined, begin);
                }
            }
        }
    }
    let mut first = vec![0; stages];
    let mut end = count;
    for stage in (0..stages).rev() {
        if !best[stage][end].is_finite() {
            return None;
        }
        first[stage] = from[stage][end];
        end = first[stage];
    }
    Some((best[stages - 1][count], first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    fn layers(costs: &[u32]) -> Vec<Layer> {
        costs.iter().map(|&cost| Layer { cost: f64::from(cost), memory: u64::from(cost) }).collect()
    }

    /// Of each stage.
    fn of_stages(layers: &[Layer], first: &[usize]) -> Vec<f64> {
        let ends = first.iter().skip(1).copied().chain([layers.len()]);
        first.iter().zip(ends).map(|(&from, to)| layers[from..to].iter().map(|it| it.cost).sum()).collect()
    }

    /// Every cut there is, by the bits of a number.
    fn all_cuts(count: usize, stages: usize) -> Vec<Vec<usize>> {
        let cut = |bits: usize| [0].into_iter().chain((1..count).filter(move |at| bits >> at & 1 == 1)).collect();
        (0..1 << count).step_by(2).map(cut).filter(|cut: &Vec<usize>| cut.len() == stages).collect()
    }

    #[test]
    fn no_cut_is_better() {
        let mut rng = Rng::new(10);
        for _ in 0..200 {
            let costs: Vec<u32> = (0..rng.from(1, 9)).map(|_| rng.from(0, 20) as u32).collect();
            let mut layers = layers(&costs);
            for layer in &mut layers {
                layer.memory = rng.from(0, 20) as u64;
            }
            let stages = rng.from(1, layers.len());
            let limit = rng.from(10, 60) as u64;
            let fits = |cut: &Vec<usize>| {
                let ends = cut.iter().skip(1).copied().chain([layers.len()]);
                cut.iter()
                    .zip(ends)
                    .all(|(&from, to)| layers[from..to].iter().map(|it| it.memory).sum::<u64>() <= limit)
            };
            // The dearest stage first, then evenness; costs are whole numbers, so both are exact.
            let rank = |cut: &Vec<usize>| {
                let costs = of_stages(&layers, cut);
                (costs.iter().copied().fold(0.0, f64::max), costs.iter().map(|cost| cost * cost).sum::<f64>())
            };
            let best = all_cuts(layers.len(), stages)
                .iter()
                .filter(|cut| fits(cut))
                .map(rank)
                .reduce(|one, other| if one <= other { one } else { other });
            match chain(&layers, stages, Some(limit)) {
                Ok(cut) => assert!(fits(&cut) && cut.len() == stages && Some(rank(&cut)) == best, "{layers:?} {cut:?}"),
                Err(error) => {
                    assert!(best.is_none() && error.field == "memory");
                    let least = error.nearest[0];
                    assert!(
                        least > limit
                            && chain(&layers, stages, Some(least)).is_ok()
                            && chain(&layers, stages, Some(least - 1)).is_err()
                    );
                }
            }
        }
    }

    #[test]
    fn equal_layers_come_out_equal() {
        assert_eq!(chain(&layers(&[1; 12]), 4, None), Ok(vec![0, 3, 6, 9]));
        // Not 3, 3 and 1, which takes as long.
        assert_eq!(chain(&layers(&[1; 7]), 3, None), Ok(vec![0, 3, 5]));
        // A heavy first layer takes a stage with fewer layers.
        assert_eq!(chain(&layers(&[4, 1, 1, 1, 1, 1, 1, 1, 1]), 3, None), Ok(vec![0, 1, 5]));
        assert_eq!(
            chain(&layers(&[1]), 2, None).unwrap_err().to_string(),
            "stages: 2 for 1 layers: each stage needs one; nearest valid: 1"
        );
        assert_eq!(chain(&[Layer { cost: f64::NAN, memory: 0 }], 1, None).unwrap_err().field, "cost");
    }
}
