//! Sobol's points as a searcher: a design that fills the space evenly, looking at no results.

use crate::{Config, Proposal, Rng, Searcher, Sobol, View};

/// The points of a scrambled Sobol sequence in order, one coordinate per parameter (of an inactive
/// parameter it is passed over). A point that was tried before, as rounding makes it, is left out.
#[derive(Debug, Default)]
pub struct Points {
    /// Made of the first random numbers that it is given, for all that follow: the seed is in the
    /// memo.
    sequence: Option<(u64, Sobol)>,
}

/// How many points are looked at for one that was not tried.
const LOOKED_AT: u32 = 4096;

impl Searcher for Points {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        // The memo: two halves of the seed (exact in doubles), and the next point's number.
        let (seed, next) = match view.memo.map(Vec::as_slice) {
            Some(&[high, low, next]) => (((high as u64) << 32) | low as u64, next as u32),
            _ => (rng.bits(), 0),
        };
        if self.sequence.as_ref().is_none_or(|(known, _)| *known != seed) {
            self.sequence = Some((seed, Sobol::new(view.space.parameters().len(), seed)));
        }
        let Some((_, sobol)) = &self.sequence else { return Proposal::Exhausted };
        let config = |point: u32| {
            view.space.build(|parameter| view.space.from_unit(parameter, sobol.coordinate(point, parameter)))
        };
        let tried = |config: &Config| view.history.has_tried(config);
        let point =
            (0..LOOKED_AT).map(|ahead| next.wrapping_add(ahead)).find(|&point| !tried(&config(point))).unwrap_or(next);
        let memo = vec![f64::from((seed >> 32) as u32), f64::from(seed as u32), f64::from(point.wrapping_add(1))];
        Proposal::Try { config: config(point), memo: Some(memo) }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ask, Outcome, SearcherSpec, Space, Study, StudySpec};

    fn study(space: &str, seed: u64) -> Study {
        let space: Space = serde_json::from_str(space).unwrap();
        Study::new(StudySpec { searcher: SearcherSpec::Sobol, ..StudySpec::random(space, seed) }).unwrap()
    }

    fn start(study: &mut Study) -> Option<crate::Config> {
        let Ask::Start(start) = study.ask() else { return None };
        study.end(start.trial, Outcome::Failed);
        Some(start.config)
    }

    const SPACE: &str =
        r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0},{"name":"n","type":"integer","min":0,"max":7}]"#;

    #[test]
    fn sixty_four_points_are_stratified_and_a_restored_study_goes_on() {
        let mut one = study(SPACE, 4);
        let mut xs = [0; 64];
        let mut ns = [0; 8];
        for turn in 0..64 {
            if turn == 20 {
                one = Study::restore(one.snapshot()).unwrap();
            }
            let config = start(&mut one).unwrap();
            xs[(one.space().number(&config, "x").unwrap() * 64.0) as usize] += 1;
            ns[one.space().number(&config, "n").unwrap() as usize] += 1;
        }
        assert!(xs.iter().all(|&count| count == 1) && ns.iter().all(|&count| count == 8), "{xs:?} {ns:?}");
    }

    #[test]
    fn a_small_space_is_tried_whole_before_anything_twice() {
        let mut study = study(
            r#"[{"name":"a","type":"categorical","values":["p","q","r"]},{"name":"n","type":"integer","min":1,"max":5}]"#,
            2,
        );
        for _ in 0..15 {
            start(&mut study).unwrap();
        }
        assert_eq!(study.history().different(), 15);
        assert!(start(&mut study).is_some());
    }
}
