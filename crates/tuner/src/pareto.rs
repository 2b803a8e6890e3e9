//! Several objectives at once, all minimised: who dominates whom, fronts, and hypervolume.

/// At least as good in every objective, and better in one.
pub fn dominates(one: &[f64], other: &[f64]) -> bool {
    one.iter().zip(other).all(|(a, b)| a <= b) && one.iter().zip(other).any(|(a, b)| a < b)
}

fn lexical(one: &[f64], other: &[f64]) -> std::cmp::Ordering {
    one.iter().zip(other).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}

/// Sorts by dominance: rank 0 is dominated by nobody, rank 1 by points of rank 0 only, and so on.
/// Equal points have equal ranks. Two objectives take n log n steps, more take n^2 at worst (X.
/// Zhang et al., "An efficient approach to nondominated sorting", 2015).
pub fn ranks<P: AsRef<[f64]>>(points: &[P]) -> Vec<u32> {
    let at = |index: usize| points[index].as_ref();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by(|&one, &other| lexical(at(one), at(other)).then(one.cmp(&other)));
    let mut ranks = vec![0; points.len()];
    // Members of every front so far, in the order of `order`: nobody is dominated by one who comes
    // later.
    let mut fronts: Vec<Vec<usize>> = Vec::new();
    for index in order {
        let point = at(index);
        let is_in_reach = |front: &Vec<usize>| match point.len() {
            // The last of a front has the least second objective.
            0..=2 => front.last().is_some_and(|&last| dominates(at(last), point)),
            _ => front.iter().rev().any(|&member| dominates(at(member), point)),
        };
        // Whoever is dominated by a member of a front is dominated by one of each front before it.
        let rank = fronts.partition_point(is_in_reach);
        if rank == fronts.len() {
            fronts.push(Vec::new());
        }
        fronts[rank].push(index);
        ranks[index] = u32::try_from(rank).unwrap_or(u32::MAX);
    }
    ranks
}

/// Indices of the points that nobody dominates, in order.
pub fn front<P: AsRef<[f64]>>(points: &[P]) -> Vec<usize> {
    ranks(points).iter().enumerate().filter(|(_, rank)| **rank == 0).map(|(index, _)| index).collect()
}

/// The volume that the points dominate below a reference point; what is not below the reference in
/// every objective adds nothing. Exact; by L. While, L. Bradstreet and L. Barone, "A fast way of
/// calculating exact hypervolumes" (2012). Meant for up to some hundred points.
pub fn hypervolume<P: AsRef<[f64]>>(points: &[P], reference: &[f64]) -> f64 {
    let inside: Vec<Vec<f64>> = points
        .iter()
        .map(|point| point.as_ref().to_vec())
        .filter(|point| point.iter().zip(reference).all(|(a, r)| a < r))
        .collect();
    volume(&nondominated(inside), reference)
}

/// How much of the volume is lost without each point: 0 for one that is dominated or there twice.
pub fn contributions<P: AsRef<[f64]>>(points: &[P], reference: &[f64]) -> Vec<f64> {
    let all: Vec<&[f64]> = points.iter().map(AsRef::as_ref).collect();
    let exclusive = |index: usize| {
        let point = all[index];
        if point.iter().zip(reference).any(|(a, r)| a >= r) {
            return 0.0;
        }
        let others: Vec<&[f64]> =
            all.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, it)| *it).collect();
        exclusive_volume(point, &others, reference)
    };
    (0..all.len()).map(exclusive).collect()
}

/// Without the dominated ones, and equal ones once.
fn nondominated(points: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    let ranks = ranks(&points);
    let mut kept: Vec<Vec<f64>> =
        points.into_iter().zip(ranks).filter(|(_, rank)| *rank == 0).map(|(point, _)| point).collect();
    kept.sort_by(|one, other| lexical(one, other));
    kept.dedup();
    kept
}

fn box_volume(point: &[f64], reference: &[f64]) -> f64 {
    point.iter().zip(reference).map(|(a, r)| r - a).product()
}

/// Of points that do not dominate each other, in lexical order.
fn volume(points: &[Vec<f64>], reference: &[f64]) -> f64 {
    if reference.len() == 2 {
        let mut above = reference[1];
        let mut total = 0.0;
        for point in points {
            total += (reference[0] - point[0]) * (above - point[1]);
            above = point[1];
        }
        return total;
    }
    // Each point's volume beyond that of those after it.
    let exclusive = |(index, point): (usize, &Vec<f64>)| exclusive_volume(point, &points[index + 1..], reference);
    points.iter().enumerate().map(exclusive).sum()
}

/// What `point` dominates and none of `others` does.
fn exclusive_volume<P: AsRef<[f64]>>(point: &[f64], others: &[P], reference: &[f64]) -> f64 {
    let limited = |other: &P| point.iter().zip(other.as_ref()).map(|(a, b)| a.max(*b)).collect::<Vec<f64>>();
    let shared: Vec<Vec<f64>> =
        others.iter().map(limited).filter(|it| it.iter().zip(reference).all(|(a, r)| a < r)).collect();
    let shared = if shared.is_empty() { 0.0 } else { volume(&nondominated(shared), reference) };
    (box_volume(point, reference) - shared).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn random(count: usize, objectives: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut rng = Rng::new(seed, 0);
        // Few values per axis, so that ties and duplicates come.
        (0..count).map(|_| (0..objectives).map(|_| rng.index(12) as f64 / 12.0).collect()).collect()
    }

    #[test]
    fn ranks_are_those_of_peeling() {
        for objectives in 1..=4 {
            let points = random(120, objectives, objectives as u64);
            let mut expected = vec![u32::MAX; points.len()];
            for rank in 0.. {
                let left: Vec<usize> = (0..points.len()).filter(|&index| expected[index] == u32::MAX).collect();
                if left.is_empty() {
                    break;
                }
                for &index in &left {
                    if !left.iter().any(|&other| dominates(&points[other], &points[index])) {
                        expected[index] = rank + 1_000;
                    }
                }
                expected.iter_mut().filter(|it| **it == rank + 1_000).for_each(|it| *it = rank);
            }
            assert_eq!(ranks(&points), expected, "{objectives} objectives");
        }
    }

    #[test]
    fn volumes_of_known_figures() {
        assert_eq!(hypervolume(&[[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]], &[3.0, 3.0]), 6.0);
        assert_eq!(contributions(&[[0.0, 2.0], [1.0, 1.0], [2.0, 0.0], [2.0, 2.0]], &[3.0, 3.0]), [1.0, 1.0, 1.0, 0.0]);
        // Three unit cubes' corners cut off a cube of side 2: 8 - 4 = 4 by inclusion and exclusion.
        assert_eq!(hypervolume(&[[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]], &[2.0, 2.0, 2.0]), 4.0);
        assert_eq!(hypervolume(&[[3.5, 0.0]], &[3.0, 3.0]), 0.0);
        assert_eq!(hypervolume::<[f64; 2]>(&[], &[3.0, 3.0]), 0.0);
    }

    #[test]
    fn volumes_are_counted_cells() {
        // On a grid of twelfths the volume is a number of cells.
        for objectives in 2..=4 {
            let points = random(14, objectives, 40 + objectives as u64);
            let reference = vec![1.0; objectives];
            let mut cells = 0_u32;
            for cell in 0..12_usize.pow(objectives as u32) {
                let middle: Vec<f64> =
                    (0..objectives).map(|axis| (cell / 12_usize.pow(axis as u32) % 12) as f64 / 12.0 + 0.01).collect();
                cells += u32::from(points.iter().any(|point| point.iter().zip(&middle).all(|(a, b)| a < b)));
            }
            let expected = f64::from(cells) / 12_f64.powi(objectives as i32);
            assert!((hypervolume(&points, &reference) - expected).abs() < 1e-12);
            // A point's contribution is what the whole loses without it.
            for (index, share) in contributions(&points, &reference).into_iter().enumerate() {
                let mut rest = points.clone();
                rest.remove(index);
                assert!((expected - hypervolume(&rest, &reference) - share).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn a_study_knows_its_front() {
        use crate::{Ask, Direction, Outcome, Space, Study, StudySpec};
        let space: Space = serde_json::from_str(r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0}]"#).unwrap();
        let spec =
            StudySpec { objectives: vec![Direction::Minimize, Direction::Maximize], ..StudySpec::random(space, 1) };
        let mut study = Study::new(spec).unwrap();
        for values in [vec![1.0, 1.0], vec![2.0, 3.0], vec![2.0, 2.0], vec![0.0, f64::NAN], vec![5.0, 5.0]] {
            let Ask::Start(start) = study.ask() else { panic!("there is more to try") };
            study.end(start.trial, Outcome::Completed { values });
        }
        // Trial 2 is dominated, and trial 3 failed.
        assert_eq!(study.front(), [0, 1, 4]);
    }
}
