//! One tuning job's studies: made of its row and its records, asked and told in the order of the
//! core's requests.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use shoal_plane::{Command, JobName, Observation, StudyRecord, TrialView};
use shoal_store::{ResourceRow, Rows, StoreError, TrialFilter};
use shoal_tuner::{Ask, Outcome, Record, SchedulerSpec, Study, TrialId, Verdict};
use shoal_wire::CreateTuningJob;

use super::{
    Design,
    children::{Newborn, Nursery},
    designs,
    origins::has_checkpoint,
    parents::{Finished, finished},
};
use crate::{Images, clock::now_ms, core::NewChild, error_chain::describe, hex::sha256_hex, requests};

/// An answer goes out after so much computing, with what it has: the first trials start while the
/// rest are still suggested, and others' searches are not kept waiting.
const SLICE: Duration = Duration::from_millis(5);

/// See [`Searches::is_quick`].
const QUICK: Duration = Duration::from_millis(2);

/// The studies of a tuning job that lives.
#[derive(Debug)]
pub(super) struct Searches {
    request: CreateTuningJob,
    nursery: Nursery,
    searches: Vec<Search>,
    /// Records that are stored.
    stored: u64,
    /// How long the last suggestion took.
    took: Option<Duration>,
}

#[derive(Debug)]
struct Search {
    design: Design,
    study: Study,
    started: u32,
    exhausted: bool,
    /// Training jobs by trial, for those that others may copy.
    jobs: Vec<Option<JobName>>,
    /// When a trial that may be copied told its last value, in milliseconds since the epoch.
    told_ms: HashMap<TrialId, u64>,
    /// Records of before the first suggestion that the core does not know yet.
    injected: Vec<Record>,
}

/// Why a study gives no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server ends: the same is asked for at the next start.
    Stopping,
    /// Later it may work.
    Again(String),
    /// It will never work: a sentence for people.
    Never(String),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Again(describe(&error))
    }
}

fn never(error: impl std::fmt::Display) -> Trouble {
    Trouble::Never(error.to_string())
}

/// What the core is told.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) command: Command,
    /// New trials' training jobs, in the order of the command's answers.
    pub(super) children: Vec<NewChild>,
}

/// The seed of a tuning job that asked for none: as random as its uid.
pub(crate) fn seed(request: &CreateTuningJob, uid: &str) -> u64 {
    let drawn = || u64::from_str_radix(&sha256_hex(&format!("seed of {uid}"))[..16], 16).unwrap_or_default();
    request.seed.map_or_else(drawn, u64::from)
}

/// What all tuning jobs have in common.
pub(super) struct Surroundings<'a> {
    pub(super) rows: &'a dyn Rows,
    pub(super) images: &'a dyn Images,
    pub(super) region: &'a str,
    pub(super) account: &'a str,
}

impl Searches {
    /// The studies as they were after the last record that is stored.
    ///
    /// # Errors
    /// Row or records cannot be read, or make no sense together.
    pub(super) fn open(tuning: &ResourceRow, around: &Surroundings<'_>) -> Result<Self, Trouble> {
        let request = requests::tuning_job(tuning).map_err(|error| Trouble::Never(error.message))?;
        let designs = designs(&request, seed(&request, &tuning.uid), around.images)
            .map_err(|error| Trouble::Never(error.message))?;
        let mut searches = Vec::with_capacity(designs.len());
        for design in designs {
            let study = Study::new(design.study.clone()).map_err(never)?;
            let (jobs, told_ms, injected) = (Vec::new(), HashMap::new(), Vec::new());
            searches.push(Search { design, study, started: 0, exhausted: false, jobs, told_ms, injected });
        }
        let nursery = Nursery {
            tuning: tuning.name.clone().into(),
            uid: tuning.uid.clone(),
            region: around.region.to_owned(),
            account: around.account.to_owned(),
            creator: tuning.creator.clone(),
        };
        let mut all = Self { request, nursery, searches, stored: 0, took: None };
        all.replay(around.rows)?;
        all.share_out();
        if all.stored == 0 {
            all.know_parents(around.rows)?;
        }
        if all.searches.iter().any(Search::copies) {
            all.know_jobs(around.rows)?;
        }
        Ok(all)
    }

    /// Whether they are of this tuning job, and not of an earlier one of its name.
    pub(super) fn are_of(&self, tuning: &ResourceRow) -> bool {
        self.nursery.uid == tuning.uid
    }

    /// Whether a suggestion is likely to take less time than making something durable. One that
    /// copies may wait for a checkpoint.
    pub(super) fn is_quick(&self) -> bool {
        let copies = |search: &Search| matches!(search.design.study.scheduler, SchedulerSpec::Pbt(_));
        self.took.is_some_and(|took| took < QUICK) && !self.searches.iter().any(copies)
    }

    fn replay(&mut self, rows: &dyn Rows) -> Result<(), Trouble> {
        let mut failure = None;
        let tuning = self.nursery.tuning.clone();
        rows.records(&tuning, 0, &mut |seq, bytes| {
            if failure.is_none() {
                failure = self.fold(seq, bytes).err();
            }
            Ok(())
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn fold(&mut self, seq: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let tuning = &self.nursery.tuning;
        let wrong = |what: &dyn std::fmt::Display| {
            Trouble::Never(format!("record {seq} of tuning job {tuning} cannot be used: {what}"))
        };
        let StudyRecord { definition, record } = serde_json::from_slice(bytes).map_err(|error| wrong(&error))?;
        let missing = || wrong(&"it is of a definition that is not there");
        let search = self.searches.get_mut(definition as usize).ok_or_else(missing)?;
        let number = search.study.records().len();
        search.study.replay(record).map_err(|error| wrong(&error))?;
        if let Some(record) = search.study.records().get(number).cloned() {
            search.notes(&record);
        }
        self.stored = seq;
        Ok(())
    }

    /// The definitions' studies start one tuning job's trials.
    fn share_out(&mut self) {
        let Some(most) = self.request.limits.max_jobs.filter(|_| self.searches.len() > 1) else { return };
        let left = most.saturating_sub(self.searches.iter().map(|search| search.started).sum());
        self.searches.iter_mut().for_each(|search| search.study.limit(search.started + left));
    }

    /// The training jobs whose checkpoints others may begin with.
    fn know_jobs(&mut self, rows: &dyn Rows) -> Result<(), Trouble> {
        let mut filter = TrialFilter { tuning: self.nursery.tuning.to_string(), limit: 1000, ..TrialFilter::default() };
        loop {
            let page = rows.list_trials(&filter)?;
            for (row, _) in page.rows {
                let Ok(TrialView { definition, trial, .. }) = serde_json::from_slice(&row.view) else { continue };
                let search = self.searches.get_mut(definition as usize);
                if let Some(job) = search.and_then(|search| search.jobs.get_mut(trial as usize)) {
                    *job = Some(row.job.into());
                }
            }
            let Some(next) = page.next else { return Ok(()) };
            filter.after = Some(next);
        }
    }

    /// Trials that earlier tuning jobs have finished are known from the beginning.
    fn know_parents(&mut self, rows: &dyn Rows) -> Result<(), Trouble> {
        let Some(warm_start) = self.request.warm_start.clone() else { return Ok(()) };
        for Finished { definition, job, hyperparameters, outcome } in finished(rows, &warm_start.parents)? {
            let Some(search) = self.searches.get_mut(definition) else { continue };
            let texts = |name: &str| hyperparameters.get(name).map(String::as_str);
            let Ok(config) = search.study.space().adopt(texts) else { continue };
            if matches!(&outcome, Outcome::Completed { values } if values.len() != search.design.objectives.len()) {
                continue;
            }
            let number = search.study.records().len();
            search.study.inject(config, outcome).map_err(never)?;
            search.injected.extend_from_slice(&search.study.records()[number..]);
            search.jobs.push(Some(job.into()));
        }
        Ok(())
    }

    /// The answer to [`shoal_plane::TunerRequest::Ask`].
    ///
    /// # Errors
    /// A trial's training job cannot be composed; the studies are to be opened anew.
    pub(super) fn suggest(&mut self, rows: &dyn Rows, seq: u64, wanted: u32) -> Result<Told, Trouble> {
        let began = Instant::now();
        let mut records = Vec::new();
        for (definition, search) in (0..).zip(&mut self.searches) {
            let injected = std::mem::take(&mut search.injected);
            records.extend(injected.into_iter().map(|record| StudyRecord { definition, record }));
        }
        let mut children = Vec::new();
        let (mut given, mut waits) = (0, false);
        let mut waiting = vec![false; self.searches.len()];
        while given < wanted && (given == 0 || began.elapsed() < SLICE) {
            // The definition with the fewest trials is next.
            let open = (0..self.searches.len()).filter(|&it| !waiting[it] && !self.searches[it].exhausted);
            let Some(place) = open.min_by_key(|&it| self.searches[it].started) else {
                waits = true;
                break;
            };
            let number = 1 + self.searches.iter().map(|search| u64::from(search.started)).sum::<u64>();
            let definition = u32::try_from(place).unwrap_or(u32::MAX);
            let search = &mut self.searches[place];
            let before = search.study.records().len();
            match search.study.ask() {
                Ask::Wait => waiting[place] = true,
                Ask::End => search.exhausted = true,
                Ask::Resume { .. } => given += 1,
                Ask::Start(start) => {
                    given += 1;
                    let mut origin =
                        start.origin.and_then(|origin| search.jobs.get(origin.trial as usize).cloned().flatten());
                    let told_ms =
                        start.origin.and_then(|origin| search.told_ms.get(&origin.trial).copied()).unwrap_or(0);
                    if let Some(job) = &origin
                        && !has_checkpoint(rows, job, told_ms)?
                    {
                        tracing::warn!(
                            "{job} has no checkpoint: trial {number} of tuning job {}, which was to begin with it, \
                             begins anew",
                            self.nursery.tuning
                        );
                        origin = None;
                    }
                    let trial = Newborn {
                        definition,
                        trial: start.trial,
                        number,
                        origin,
                        keeps_checkpoints: search.design.keeps_checkpoints,
                    };
                    let new = self.nursery.child(rows, &self.request, trial, search.study.space(), &start.config)?;
                    search.begins(start.trial, &new.child.name);
                    children.push(new);
                }
            }
            let new = search.study.records()[before..].iter().cloned();
            records.extend(new.map(|record| StudyRecord { definition, record }));
            self.share_out();
        }
        self.took = Some(began.elapsed());
        let tuning = self.nursery.tuning.clone();
        let known = children.iter().map(|new| new.child.clone()).collect();
        Ok(Told { command: Command::Suggested { tuning, seq, records, children: known, waits }, children })
    }

    /// The answer to [`shoal_plane::TunerRequest::Tell`].
    pub(super) fn observe(&mut self, seq: u64, definition: u32, trial: u32, what: &Observation) -> Told {
        let tuning = self.nursery.tuning.clone();
        let Some(search) = self.searches.get_mut(definition as usize) else {
            return Told {
                command: Command::Judged { tuning, seq, records: Vec::new(), converged: false },
                children: Vec::new(),
            };
        };
        let number = search.study.records().len();
        match what {
            Observation::Reported { resource, value } => {
                search.study.report(trial, *resource, &[value.unwrap_or(f64::NAN)]);
                if search.copies() {
                    search.told_ms.insert(trial, now_ms());
                }
            }
            Observation::Ended { outcome } => {
                search.study.end(trial, outcome.clone());
                search.told_ms.remove(&trial);
            }
        }
        let records: Vec<_> = search.study.records()[number..].to_vec();
        records.iter().for_each(|record| search.notes(record));
        // A trial that was stopped has no end of its own.
        let closes = |record: &Record| match record {
            Record::Ended { .. } => true,
            Record::Reported { verdicts, .. } => verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Stop),
            Record::Asked { .. } | Record::Injected { .. } => false,
        };
        let converged = records.iter().any(closes) && self.searches.iter().all(Search::has_converged);
        let records = records.into_iter().map(|record| StudyRecord { definition, record }).collect();
        Told { command: Command::Judged { tuning, seq, records, converged }, children: Vec::new() }
    }
}

impl Search {
    fn begins(&mut self, trial: u32, job: &str) {
        self.started += 1;
        self.jobs.resize(trial as usize + 1, None);
        self.jobs[trial as usize] = Some(job.into());
    }

    /// Its trials may begin with others' checkpoints.
    fn copies(&self) -> bool {
        matches!(self.design.study.scheduler, SchedulerSpec::Pbt(_))
    }

    /// What counts beside the study itself.
    fn notes(&mut self, record: &Record) {
        match record {
            Record::Asked { answer: Ask::Start(start), .. } => {
                self.started += 1;
                self.jobs.resize(start.trial as usize + 1, None);
            }
            Record::Asked { answer: Ask::End, .. } => self.exhausted = true,
            Record::Asked { .. } | Record::Reported { .. } | Record::Ended { .. } | Record::Injected { .. } => {}
        }
    }

    fn has_converged(&self) -> bool {
        self.study.progress().has_converged(self.study.space().dimensions())
    }
}
