use super::*;

/// Pseudo-random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// How these steps end.
    fn outcome(&mut self, steps: &[Step]) -> Outcome {
        if self.below(20) == 0 {
            return Outcome::Panicked;
        }
        match (self.below(4), steps.last()) {
            (0, Some(Step::Prepare(_) | Step::StoreArtifacts { .. })) => {
                Outcome::Delayed { reason: attempt("full"), has_written: self.below(2) == 0 }
            }
            (1, Some(Step::Prepare(_) | Step::WriteNotes | Step::StoreArtifacts { .. })) => {
                Outcome::Failed(attempt("no program"))
            }
            (2, Some(Step::Prepare(_))) => {
                Outcome::Found(KnownPlan { plan: plan("a", false), is_complete: true, has_reports: true })
            }
            (_, Some(Step::Prepare(_))) => {
                Outcome::Prepared { reuse_key: (self.below(2) == 0).then(|| attempt("key")) }
            }
            (_, Some(Step::FindInstance)) => instance([None, Some(false), Some(true)][self.below(3) as usize]),
            _ => Outcome::Done,
        }
    }
}

#[test]
fn in_every_history_an_attempt_has_one_action_at_a_time_and_each_outcome_reaches_the_core() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let mut lanes = Lanes::default();
        let mut requests = VecDeque::from([launch("a"), stop("a"), store("a"), release("a")]);
        let (mut performing, mut committing): (Option<Vec<Step>>, Option<Command>) = (None, None);
        let mut ends = Vec::new();
        let mut now = 0;
        let mut answers: Vec<Event> = Vec::new();
        let is_over = |lanes: &Lanes| lanes.lanes.is_empty();
        while !requests.is_empty() || !is_over(&lanes) {
            let event = match (random.below(6), &performing, &committing) {
                (0 | 1, Some(steps), _) => {
                    let outcome = random.outcome(steps);
                    performing = None;
                    ended("a", outcome)
                }
                (2, _, Some(_)) => {
                    committing = None;
                    Event::CommitFailed { attempt: attempt("a") }
                }
                (3, _, Some(_)) => {
                    committing = None;
                    Event::Committed { attempt: attempt("a") }
                }
                (4, ..) => {
                    now += random.below(3);
                    Event::Timeout
                }
                (5, ..) if !answers.is_empty() => answers.remove(0),
                _ => match requests.pop_front() {
                    Some(action) => Event::Requested(action),
                    None => continue,
                },
            };
            for io in lanes.handle(event, at(now)) {
                match io {
                    Io::Perform { steps, .. } => {
                        ends.extend(
                            steps.iter().filter(|step| matches!(step, Step::Order(_) | Step::FindInstance)).cloned(),
                        );
                        assert!(
                            committing.is_none() && performing.replace(steps).is_none(),
                            "seed {seed}: two simultaneously"
                        );
                    }
                    Io::CheckExit { .. } => answers.push(checked(random.below(2) == 0, false)),
                    Io::Pool(warm_pool::Event::Requested { .. }) => answers.push(match random.below(2) {
                        0 => Event::Granted { attempt: attempt("a"), grant: grant() },
                        _ => Event::Declined { attempt: attempt("a") },
                    }),
                    Io::Pool(warm_pool::Event::Retain { .. }) => answers.push(match random.below(2) {
                        0 => Event::Retained { attempt: attempt("a") },
                        _ => Event::NotRetained { attempt: attempt("a") },
                    }),
                    Io::Pool(_) => {}
                    Io::Commit { command, .. } => {
                        assert!(
                            performing.is_none() && committing.replace(command).is_none(),
                            "seed {seed}: two simultaneously"
                        );
                    }
                    Io::Order(_) | Io::Cancel { .. } => {
                        assert!(performing.is_some() || !answers.is_empty(), "seed {seed}: no launch is performed");
                    }
                    Io::LogDelay { .. } | Io::ReportDelay { .. } => {}
                }
            }
            lanes.check();
        }
        // A launch may be dropped for a stop, artifacts for the release; the others are done, in
        // order.
        assert_eq!(ends, [Step::Order(Box::new(stop("a"))), Step::FindInstance], "seed {seed}");
        assert!(lanes.lanes.is_empty(), "seed {seed}");
    }
}
