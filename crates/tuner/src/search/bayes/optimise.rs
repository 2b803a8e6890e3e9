//! Where a surface is highest: many candidates all over and around good points, the most promising
//! of which climb: along continuous coordinates by L-BFGS, over integers and choices from neighbour
//! to neighbour. What is looked at is always what would be tried, exactly rounded.

use super::acquire::Surface;
use super::encode::Encoding;
use super::lbfgs::{Limits, Search};
use crate::{Config, Rng, Sobol};

/// How much to look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Candidates all over the space.
    pub(crate) spread: usize,
    /// Candidates around each anchor.
    pub(crate) around: usize,
    /// How many climb.
    pub(crate) climbers: usize,
    /// Evaluations of each climb along the continuous coordinates.
    pub(crate) steps: usize,
}

/// Rounds of continuous and discrete climbing in turn.
const ROUNDS: usize = 6;
/// Moves between neighbours in a round.
const MOVES: usize = 12;
/// A move or climb that gains less (of a logarithm) is none.
const GAIN: f64 = 1e-4;

/// A point on its way up.
#[derive(Debug, Clone)]
struct Climber {
    coordinates: Vec<f64>,
    value: f64,
    is_done: bool,
}

/// The best configuration that is not taken, if any was met, and its value. `anchors`: coordinates
/// of good points, best first.
pub(crate) fn highest(
    encoding: &Encoding<'_>,
    surface: &dyn Surface,
    anchors: &[Vec<f64>],
    effort: Effort,
    rng: &mut Rng,
    is_taken: impl Fn(&Config) -> bool,
) -> Option<(Config, f64)> {
    let candidates = candidates(encoding, anchors, effort, rng);
    let points: Vec<Vec<f64>> = candidates.iter().map(|candidate| encoding.masked(candidate)).collect();
    let values = surface.values(&points);
    let mut pool: Vec<Climber> = candidates
        .into_iter()
        .zip(values)
        .map(|(coordinates, value)| Climber { coordinates, value, is_done: false })
        .filter(|climber| climber.value.is_finite())
        .collect();
    pool.sort_by(|one, other| other.value.total_cmp(&one.value));
    let mut climbers = chosen(&pool, effort.climbers, rng);
    climb(encoding, surface, &mut climbers, effort.steps);
    climbers.sort_by(|one, other| other.value.total_cmp(&one.value));
    // Where the best is taken already (a small space), what lies around it, then all that was met.
    let mut near: Vec<Climber> = Vec::new();
    for climber in climbers.iter().chain(&pool) {
        let config = encoding.config(&climber.coordinates);
        if !is_taken(&config) {
            let better = near.iter().find(|other| other.value > climber.value);
            return Some(
                better.map_or((config, climber.value), |other| (encoding.config(&other.coordinates), other.value)),
            );
        }
        if near.is_empty() {
            near = free_neighbours(encoding, surface, &climber.coordinates, &is_taken);
        }
    }
    near.first().map(|climber| (encoding.config(&climber.coordinates), climber.value))
}

/// Untaken neighbours, best first.
fn free_neighbours(
    encoding: &Encoding<'_>,
    surface: &dyn Surface,
    coordinates: &[f64],
    is_taken: &impl Fn(&Config) -> bool,
) -> Vec<Climber> {
    let free: Vec<Vec<f64>> =
        neighbours(encoding, coordinates).into_iter().filter(|it| !is_taken(&encoding.config(it))).collect();
    let points: Vec<Vec<f64>> = free.iter().map(|it| encoding.masked(it)).collect();
    let values = surface.values(&points);
    let mut found: Vec<Climber> = free
        .into_iter()
        .zip(values)
        .map(|(coordinates, value)| Climber { coordinates, value, is_done: true })
        .collect();
    found.sort_by(|one, other| other.value.total_cmp(&one.value));
    found
}

/// All over, and around good points; the anchors themselves too.
fn candidates(encoding: &Encoding<'_>, anchors: &[Vec<f64>], effort: Effort, rng: &mut Rng) -> Vec<Vec<f64>> {
    let d = encoding.space().parameters().len();
    let sobol = Sobol::new(d, rng.bits());
    let count = u32::try_from(effort.spread).unwrap_or(u32::MAX);
    let spread = (0..count)
        .map(|index| (0..d).map(|parameter| encoding.snapped(parameter, sobol.coordinate(index, parameter))).collect());
    let mut all: Vec<Vec<f64>> = spread.collect();
    for anchor in anchors {
        all.push(anchor.clone());
        all.extend((0..effort.around).map(|_| moved(encoding, anchor, rng)));
    }
    all
}

/// A point near another: some coordinates move a little, some choices change.
fn moved(encoding: &Encoding<'_>, anchor: &[f64], rng: &mut Rng) -> Vec<f64> {
    let d = anchor.len();
    // From a thousandth to a fifth of the range.
    let reach = 0.2 * libm::exp(rng.unit() * -5.3);
    // About how many coordinates move: one to all.
    #[expect(clippy::cast_precision_loss, reason = "a count of parameters")]
    let share = (1.0 + rng.unit() * rng.unit() * d as f64) / d as f64;
    let must = rng.index(d);
    let mut point = anchor.to_vec();
    for (parameter, coordinate) in point.iter_mut().enumerate() {
        let (chance, step, anywhere) = (rng.unit(), rng.normal(), rng.unit());
        if chance >= share && parameter != must {
            continue;
        }
        let others =
            if encoding.is_continuous(parameter) { Vec::new() } else { encoding.others(parameter, *coordinate) };
        if encoding.is_continuous(parameter) {
            *coordinate = (*coordinate + reach * step).clamp(0.0, 1.0);
        } else if !others.is_empty() {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "an index"
            )]
            let index = (anywhere * others.len() as f64) as usize;
            *coordinate = others[index.min(others.len() - 1)];
        }
    }
    point
}

/// The best of all, and others by chance: the better the likelier.
fn chosen(pool: &[Climber], count: usize, rng: &mut Rng) -> Vec<Climber> {
    let Some(best) = pool.first() else { return Vec::new() };
    let mut chosen = vec![best.clone()];
    let mut weights: Vec<f64> = pool.iter().map(|climber| libm::exp(climber.value - best.value)).collect();
    weights[0] = 0.0;
    while chosen.len() < count {
        let total: f64 = weights.iter().sum();
        if total <= 1e-12 {
            break;
        }
        let mut left = rng.unit() * total;
        let index = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0 && *weight > 0.0
        });
        let Some(index) = index else { break };
        chosen.push(pool[index].clone());
        weights[index] = 0.0;
    }
    chosen
}

fn climb(encoding: &Encoding<'_>, surface: &dyn Surface, climbers: &mut [Climber], steps: usize) {
    let continuous: Vec<usize> =
        (0..encoding.space().parameters().len()).filter(|it| encoding.is_continuous(*it)).collect();
    for round in 0..ROUNDS {
        if !continuous.is_empty() {
            slide(encoding, surface, climbers, &continuous, steps);
        }
        if continuous.len() == encoding.space().parameters().len() {
            return;
        }
        let moved = hop(encoding, surface, climbers);
        for (climber, moved) in climbers.iter_mut().zip(moved) {
            climber.is_done |= !moved || continuous.is_empty();
        }
        if climbers.iter().all(|climber| climber.is_done) || round + 1 == ROUNDS {
            return;
        }
    }
}

/// Along the continuous coordinates, all climbers together.
fn slide(encoding: &Encoding<'_>, surface: &dyn Surface, climbers: &mut [Climber], continuous: &[usize], steps: usize) {
    let steepness: Vec<f64> = surface.steepness().iter().map(|it| it.clamp(0.1, 100.0)).collect();
    let limits = Limits { evaluations: steps, gradient: 1e-3, gain: GAIN };
    let mut searches: Vec<Option<(Vec<usize>, Search)>> = climbers
        .iter()
        .map(|climber| {
            let active = encoding.active(&climber.coordinates);
            let free: Vec<usize> = continuous.iter().copied().filter(|it| active[*it]).collect();
            let start: Vec<f64> = free.iter().map(|it| climber.coordinates[*it] * steepness[*it]).collect();
            let bounds = free.iter().map(|it| (0.0, steepness[*it])).collect();
            (!climber.is_done && !free.is_empty()).then(|| (free, Search::new(&start, bounds, limits)))
        })
        .collect();
    let place = |climber: &Climber, free: &[usize], at: &[f64]| {
        let mut coordinates = climber.coordinates.clone();
        free.iter().zip(at).for_each(|(it, x)| coordinates[*it] = (x / steepness[*it]).clamp(0.0, 1.0));
        coordinates
    };
    loop {
        let mut who = Vec::new();
        let mut points = Vec::new();
        for (index, search) in searches.iter().enumerate() {
            if let Some((free, search)) = search
                && let Some(at) = search.next()
            {
                who.push(index);
                points.push(encoding.masked(&place(&climbers[index], free, at)));
            }
        }
        if who.is_empty() {
            break;
        }
        for (index, (value, slopes)) in who.into_iter().zip(surface.slopes(&points)) {
            if let Some((free, search)) = &mut searches[index] {
                let gradient: Vec<f64> = free.iter().map(|it| -slopes[*it] / steepness[*it]).collect();
                search.tell(-value, &gradient);
            }
        }
    }
    for (climber, search) in climbers.iter_mut().zip(&searches) {
        if let Some((free, search)) = search {
            let (at, value) = search.best();
            if -value > climber.value {
                climber.coordinates = place(climber, free, at);
                climber.value = -value;
            }
        }
    }
}

/// All coordinates that differ in one that does not move continuously.
fn neighbours(encoding: &Encoding<'_>, coordinates: &[f64]) -> Vec<Vec<f64>> {
    let active = encoding.active(coordinates);
    let mut all = Vec::new();
    for parameter in (0..coordinates.len()).filter(|it| active[*it] && !encoding.is_continuous(*it)) {
        for other in encoding.others(parameter, coordinates[parameter]) {
            let mut neighbour = coordinates.to_vec();
            neighbour[parameter] = other;
            all.push(neighbour);
        }
    }
    all
}

/// From neighbour to best neighbour, all climbers together; says who has moved.
fn hop(encoding: &Encoding<'_>, surface: &dyn Surface, climbers: &mut [Climber]) -> Vec<bool> {
    let mut moved = vec![false; climbers.len()];
    let mut goes_on: Vec<bool> = climbers.iter().map(|climber| !climber.is_done).collect();
    for _ in 0..MOVES {
        let mut all = Vec::new();
        let mut owners = Vec::new();
        for (index, climber) in climbers.iter().enumerate().filter(|(index, _)| goes_on[*index]) {
            let neighbours = neighbours(encoding, &climber.coordinates);
            owners.extend(neighbours.iter().map(|_| index));
            all.extend(neighbours);
        }
        if all.is_empty() {
            break;
        }
        let points: Vec<Vec<f64>> = all.iter().map(|it| encoding.masked(it)).collect();
        let values = surface.values(&points);
        goes_on.fill(false);
        for ((neighbour, owner), value) in all.into_iter().zip(owners).zip(values) {
            let climber = &mut climbers[owner];
            // The first that is better, then those that are better still.
            if value > climber.value + GAIN {
                climber.coordinates = neighbour;
                climber.value = value;
                (moved[owner], goes_on[owner]) = (true, true);
            }
        }
    }
    moved
}
