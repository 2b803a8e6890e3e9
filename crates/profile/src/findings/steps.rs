//! Findings about steps: what they wait for, which rank is slow, and which steps are.

use super::{Finding, Shares, percent, time};
use crate::model::{Profile, RankSteps, SlowStep, StepPoint, mean};

/// Share of the steps' time from which on a wait matters.
const MATTERS: f64 = 0.1;
/// Times the other ranks' time, from which on a rank is slow.
const SLOWER: f64 = 1.1;
/// A step below it is mostly the framework's own work.
const SHORT_MS: f64 = 2.0;
/// The status of a training job that runs.
const RUNS: &str = "InProgress";
/// Seconds before which the start of a training that runs is not judged.
const YOUNG_S: f64 = 300.0;
/// Processors of an instance are in use from this share on.
const FULL: f64 = 0.85;

pub(super) fn findings(profile: &Profile) -> Vec<Finding> {
    let Some(shares) = Shares::of(profile) else { return Vec::new() };
    let all = [
        data(profile, shares),
        communication(profile, shares),
        imbalance(profile),
        slow_steps(profile),
        start(profile),
        slowing(profile),
        short(profile, shares),
    ];
    all.into_iter().flatten().collect()
}

/// Share of their cores that instances use.
pub(super) fn cpu_share(profile: &Profile) -> Option<f64> {
    let share = |host: &crate::HostUse| Some(host.mean("CPUUtilization")? / (100.0 * host.cores.max(1.0)));
    mean(profile.hosts.iter().filter_map(share))
}

fn data(profile: &Profile, shares: Shares) -> Option<Finding> {
    if shares.waiting < MATTERS {
        return None;
    }
    let most = most(profile, |it| it.waiting_s / it.total_s);
    let of_most = match most {
        Some(rank) if profile.ranks.len() > 1 => {
            format!("; {} waits longest, for {}", rank.name(), percent(rank.waiting_s / rank.total_s))
        }
        _ => String::new(),
    };
    let advice = if cpu_share(profile).is_some_and(|share| share >= FULL) {
        "The processors are full, so more loading processes do not help: prepare the data before the training, use \
         cheaper transformations or fewer decodings, or take instances with more cores."
            .to_owned()
    } else {
        let cores = profile.hosts.iter().map(|host| host.cores).reduce(f64::min).unwrap_or(1.0).max(1.0);
        let ranks = profile.ranks.len().div_ceil(profile.hosts.len().max(1)).max(1);
        let workers = (cores / ranks as f64).floor().max(1.0);
        format!(
            "Processors are free: load beside the training, as with DataLoader(num_workers={workers}, \
             persistent_workers=True, pin_memory=True) for each rank, a larger prefetch_factor, fewer and larger files, \
             or tf.data's prefetch."
        )
    };
    Some(Finding {
        title: "Steps wait for data".to_owned(),
        text: format!("{} of the steps' time is waiting for the next batch{of_most}.", percent(shares.waiting)),
        advice,
        share: shares.waiting,
    })
}

fn communication(profile: &Profile, shares: Shares) -> Option<Finding> {
    let rank = most(profile, |it| it.communicating_s / it.total_s)?;
    (shares.communicating >= MATTERS).then(|| Finding {
        title: "Steps wait for other ranks".to_owned(),
        text: format!(
            "{} of the steps' time is waiting in collective operations; {} waits longest, for {} a step.",
            percent(shares.communicating),
            rank.name(),
            time(rank.per_step_ms(rank.communicating_s))
        ),
        advice: "A rank that is slower than the others lets them wait: mend that first if there is one here. Else \
                 compute more for each exchange (larger batch per rank, gradient accumulation with no_sync), exchange \
                 less (shoal.torch.compression), or use fewer, larger instances; `shoal advise --links` measures the \
                 links."
            .to_owned(),
        share: shares.communicating,
    })
}

/// The rank with the greatest value, if it is a number.
fn most(profile: &Profile, of: impl Fn(&RankSteps) -> f64) -> Option<&RankSteps> {
    profile.ranks.iter().filter(|it| of(it).is_finite()).max_by(|a, b| of(a).total_cmp(&of(b)))
}

/// The rank that the others wait for: the one, and the median time of a step of all.
pub(crate) fn slowest(profile: &Profile) -> Option<(&RankSteps, f64)> {
    let mut own = Vec::from_iter(profile.ranks.iter().map(RankSteps::own_ms));
    own.sort_by(f64::total_cmp);
    // Of two ranks the faster one is what is usual.
    let usual = *own.get((own.len().max(1) - 1) / 2)?;
    let slowest = most(profile, RankSteps::own_ms)?;
    (own.len() > 1 && slowest.own_ms() > SLOWER * usual).then_some((slowest, usual))
}

fn imbalance(profile: &Profile) -> Option<Finding> {
    let (slowest, usual) = slowest(profile)?;
    let own = slowest.own_ms();
    Some(Finding {
        title: format!("Rank {} is slower than the others", slowest.rank),
        text: format!(
            "A step of {} takes {} without its waits for other ranks, where {} are usual. {}",
            slowest.name(),
            time(own),
            time(usual),
            why(profile, slowest)
        ),
        advice: "Ranks that step together go at the pace of the slowest: give each the same amount of data \
                 (DistributedSampler, buckets of like lengths), and look at what else its instance does."
            .to_owned(),
        share: (1.0 - usual / own).clamp(0.0, 1.0),
    })
}

/// What makes this rank slower than the others, in a sentence.
fn why(profile: &Profile, slowest: &RankSteps) -> String {
    let others = |of: fn(&RankSteps) -> f64| {
        mean(profile.ranks.iter().filter(|it| *it != slowest).map(|it| it.per_step_ms(of(it)))).unwrap_or(0.0)
    };
    let computing = |it: &RankSteps| it.total_s - it.waiting_s - it.communicating_s;
    let waiting = slowest.per_step_ms(slowest.waiting_s) - others(|it| it.waiting_s);
    let more = slowest.per_step_ms(computing(slowest)) - others(|it| it.total_s - it.waiting_s - it.communicating_s);
    if waiting > more {
        let (own, usual) = (time(slowest.per_step_ms(slowest.waiting_s)), time(others(|it| it.waiting_s)));
        return format!("It waits for its data: {own} a step, the others {usual}.");
    }
    let own = time(slowest.per_step_ms(computing(slowest)));
    let usual = time(others(|it| it.total_s - it.waiting_s - it.communicating_s));
    let cpu = |is_its: bool| {
        mean(
            profile
                .hosts
                .iter()
                .filter(|it| (it.host == slowest.host) == is_its)
                .filter_map(|it| Some(it.mean("CPUUtilization")? / it.cores.max(1.0))),
        )
    };
    match (cpu(true), cpu(false)) {
        (Some(its), Some(others)) if (its - others).abs() >= 10.0 => format!(
            "It computes longer: {own} a step, the others {usual}; its instance uses {its:.0} % of its processors, the \
             others {others:.0} %."
        ),
        _ => format!("It computes longer: {own} a step, the others {usual}."),
    }
}

fn slow_steps(profile: &Profile) -> Option<Finding> {
    let rank = most(profile, |it| it.slow_s)?;
    let share = rank.slow_s / rank.total_s;
    let longest = rank.slow.iter().max_by(|a, b| a.ms.total_cmp(&b.ms))?;
    if share < 0.02 && rank.slow_steps < 10 || rank.steps < 20 {
        return None;
    }
    // Between the longest ones others may be slow by chance.
    let longest_ones = Vec::from_iter(rank.slow.iter().filter(|it| 2.0 * it.ms >= longest.ms));
    let period = period(&longest_ones).map(|steps| format!(" They come every {steps} steps.")).unwrap_or_default();
    let of = |part: fn(&SlowStep) -> f64| {
        rank.slow.iter().map(part).sum::<f64>() / rank.slow.iter().map(|it| it.ms).sum::<f64>()
    };
    let advice = if of(|it| it.waiting_ms) > 0.5 {
        "They wait for data: keep the processes of the data loader between epochs (persistent_workers=True), prefetch \
         more, and avoid single large files."
    } else if of(|it| it.communicating_ms) > 0.5 {
        "They wait for another rank: look at what that does in these steps."
    } else if period.is_empty() {
        "Look at what happens in these steps: checkpoints, evaluation, logs that are written, memory that Python or \
         the GPU's allocator collects."
    } else {
        "What comes regularly is mostly a checkpoint, an evaluation or a log: do it less often, or in another thread."
    };
    Some(Finding {
        title: "Some steps take much longer than usual".to_owned(),
        text: format!(
            "{} of {} steps of {} took more than twice the usual {}, together {} of the time; the longest was step {} \
             with {}.{period}",
            rank.slow_steps,
            rank.steps,
            rank.name(),
            time(rank.p50_ms),
            percent(share),
            longest.step,
            time(longest.ms)
        ),
        advice: advice.to_owned(),
        share,
    })
}

/// Steps from one to the next, if most have the same distance.
fn period(slow: &[&SlowStep]) -> Option<u64> {
    let gaps = Vec::from_iter(slow.windows(2).map(|pair| pair[1].step - pair[0].step));
    let usual = *gaps.get(gaps.len() / 2)?;
    let same = gaps.iter().filter(|gap| **gap == usual).count();
    (gaps.len() >= 2 && usual > 1 && 4 * same >= 3 * gaps.len()).then_some(usual)
}

fn start(profile: &Profile) -> Option<Finding> {
    let first_s = profile.ranks.iter().map(|it| it.first_s).reduce(f64::max)?;
    let share = first_s / profile.seconds();
    // Of a training that has just begun the start is all that there is.
    let has_just_begun = profile.status == RUNS && profile.seconds() < YOUNG_S;
    (first_s >= 10.0 && share >= MATTERS && !has_just_begun).then(|| Finding {
        title: "The first step comes late".to_owned(),
        text: format!("It began {} after the program's start, {} of the time.", time(1000.0 * first_s), percent(share)),
        advice: "Prepare once what each start repeats: packages (an environment instead of requirements.txt), models \
                 that are downloaded or compiled, data that is read or unpacked as a whole; FastFile mode, and warm \
                 instances (KeepAlivePeriodInSeconds) for runs that follow each other."
            .to_owned(),
        share: share.min(1.0),
    })
}

fn slowing(profile: &Profile) -> Option<Finding> {
    let (rank, before, after) = profile
        .ranks
        .iter()
        .filter_map(|rank| {
            let quarter = rank.points.len() / 4;
            let of = |points: &[StepPoint]| mean(points.iter().map(|it| it.mean_ms));
            // The first quarter has the start's own costs.
            let (before, after) = (rank.points.get(quarter..2 * quarter)?, rank.points.get(3 * quarter..)?);
            (quarter >= 3).then_some((rank, of(before)?, of(after)?))
        })
        .max_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)))?;
    (after > 1.2 * before).then(|| Finding {
        title: "Steps become slower".to_owned(),
        text: format!(
            "Steps of {} took {} on average in the second quarter of the training, and {} in the last one.",
            rank.name(),
            time(before),
            time(after)
        ),
        advice:
            "Look for lists that grow (losses that keep their graph: use loss.item()), memory that fills, hooks or \
                 callbacks that are registered again in each epoch, and data that becomes longer."
                .to_owned(),
        share: (1.0 - before / after) / 2.0,
    })
}

fn short(profile: &Profile, shares: Shares) -> Option<Finding> {
    let usual = mean(profile.ranks.iter().map(|it| it.p50_ms))?;
    (usual > 0.0 && usual < SHORT_MS && shares.computing() > 0.5).then(|| Finding {
        title: "Steps are very short".to_owned(),
        text: format!("A step takes {}: much of it is the framework's own work, not the model's.", time(usual)),
        advice:
            "Try a larger batch (with a learning rate that fits it), torch.compile, or several small tensors' work \
                 as one."
                .to_owned(),
        share: 0.3 * (1.0 - usual / SHORT_MS),
    })
}
