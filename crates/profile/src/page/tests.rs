use super::*;
use crate::model::{HostStacks, HostUse, RuleOutcome, SlowStep, StepPoint};

fn example() -> Profile {
    let points = (0..20).map(|at| (f64::from(at), 180.0, 190.0)).collect();
    let rank = |rank, waiting_s| RankSteps {
        host: format!("algo-{}", rank + 1),
        rank,
        steps: 100,
        total_s: 10.0,
        waiting_s,
        p50_ms: 90.0,
        p95_ms: 110.0,
        max_ms: 900.0,
        slow_steps: 1,
        slow_s: 0.8,
        slow: vec![SlowStep { step: 41, at_s: 4.0, ms: 900.0, waiting_ms: 800.0, ..SlowStep::default() }],
        points: (0..10).map(|at| StepPoint { at_s: f64::from(at), mean_ms: 100.0, max_ms: 120.0 }).collect(),
        ..RankSteps::default()
    };
    Profile {
        job: "</title><script>x".to_owned(),
        status: "Completed".to_owned(),
        begin_s: 100.0,
        end_s: 120.0,
        hosts: vec![HostUse {
            host: "algo-1".to_owned(),
            cores: 2.0,
            series: vec![Series { metric: "CPUUtilization".to_owned(), points, ..Series::default() }],
        }],
        samples: 20,
        ranks: vec![rank(0, 6.0), rank(1, 0.5)],
        rules: vec![RuleOutcome {
            name: "outliers".to_owned(),
            status: "IssuesFound".to_owned(),
            details: "step <41>".to_owned(),
        }],
        stacks: vec![HostStacks { host: "algo-1".to_owned(), folded: "train;<module>;next 9\n".to_owned() }],
        notes: vec!["GPUs were not measured.".to_owned()],
    }
}

#[test]
fn a_page_is_whole_and_escapes_what_users_make_up() {
    let text = page(&example());
    assert!(!text.contains("{{"), "a place is left");
    for (part, times) in [
        ("<script", 0),
        ("&lt;/title&gt;&lt;script&gt;x", 2),
        ("<b>Steps wait for data</b>", 1),
        ("is the slowest", 0),
        ("step 41 of rank 0 (algo-1): 900 ms", 1),
        ("<td>41</td>", 2),
        ("step &lt;41&gt;", 1),
        ("&lt;module&gt; - 9 samples, 100.0 %", 1),
        ("GPUs were not measured.", 1),
        ("Completed; 20.0 s on 1 instance.", 1),
    ] {
        assert_eq!(text.matches(part).count(), times, "{part}");
    }
    for forbidden in ["<link", "@import", "url(", "http:", "https:"] {
        assert!(!text.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn waits_that_are_not_seen_are_not_shown_as_none() {
    let mut profile = example();
    profile.ranks.iter_mut().for_each(|rank| rank.waiting_s = 0.5);
    let text = page(&profile);
    assert!(text.contains("Waits for other ranks are not measured in this training: Gloo and NCCL"), "{text}");
    assert!(!text.contains("<dt>communication</dt>") && text.contains("<dt>computing or communication</dt>"));
    assert!(!text.contains("No rank is slower"));
    profile.ranks[0].communicating_s = 0.1;
    let text = page(&profile);
    assert!(!text.contains("not measured in this training") && text.contains("<dt>communication</dt>"));
    assert!(text.contains("No rank is slower"));
}

#[test]
fn without_steps_and_stacks_the_rest_is_shown() {
    let profile = Profile { ranks: Vec::new(), stacks: Vec::new(), rules: Vec::new(), ..example() };
    let text = page(&profile);
    assert!(text.contains("Processors") && !text.contains("Step times") && !text.contains("<h2>Rules"));
    assert!(page(&Profile::default()).contains("Nothing stands out."));
}

#[test]
fn many_ranks_do_not_make_a_page_endless() {
    let mut profile = example();
    let one = profile.ranks[0].clone();
    profile.ranks = (0..1000).map(|rank| RankSteps { rank, ..one.clone() }).collect();
    let text = page(&profile);
    assert!(text.len() < 300_000, "{}", text.len());
    assert!(text.contains("Of 1000 ranks, 12 are shown."));
}
