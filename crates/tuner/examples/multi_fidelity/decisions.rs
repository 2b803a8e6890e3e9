//! How many decisions a second.

use std::time::Instant;

use shoal_tuner::{Ask, Rng, Study, StudySpec, Verdict, named::Resources};

/// The space of the overhead benchmark.
const SPACE: &str = r#"[{"name":"a","type":"continuous","min":0,"max":1},{"name":"b","type":"continuous","min":-5,"max":5},
    {"name":"c","type":"continuous","min":0,"max":10},{"name":"d","type":"continuous","min":1,"max":2},
    {"name":"e","type":"continuous","min":1e-5,"max":1,"scaling":"Logarithmic"},{"name":"f","type":"continuous","min":1e-5,"max":1,"scaling":"Logarithmic"},
    {"name":"g","type":"integer","min":1,"max":64},{"name":"h","type":"integer","min":1,"max":12},
    {"name":"i","type":"categorical","values":["a","b","c","d"]},{"name":"j","type":"categorical","values":["a","b","c","d"]}]"#;

/// A decision is an answer to an ask or to a report. Time is that of one thread which does nothing
/// else.
pub(crate) fn measure() {
    println!("| strategy | trials | decisions / s up to 1,000 trials | 10,000 | 100,000 |");
    println!("|---|---|---|---|---|");
    for name in ["random", "asha", "asha-stopping", "hyperband", "hyperband-stopping"] {
        let resources = Resources { min: Some(1), max: Some(81), eta: Some(3) };
        let spec =
            StudySpec::named(name, serde_json::from_str(SPACE).expect("a space"), 7, resources).expect("a strategy");
        let mut study = Study::new(spec).expect("a study");
        let mut rng = Rng::new(3, 3);
        let mut rates = Vec::new();
        let (mut decisions, mut spent) = (0_u64, 0.0);
        // A thousand at a time, so that the clock costs nothing.
        let mut running: Vec<(u32, u32)> = Vec::new();
        while study.history().trials().len() < 100_000 {
            let begin = Instant::now();
            while running.len() < 1000 {
                decisions += 1;
                match study.ask() {
                    Ask::Start(start) => running.push((start.trial, 0)),
                    Ask::Resume { trial, from, .. } => running.push((trial, from)),
                    Ask::Wait | Ask::End => break,
                }
            }
            running.retain_mut(|(trial, resource)| {
                let value = rng.unit();
                if name == "random" {
                    study.end(*trial, shoal_tuner::Outcome::Completed { values: vec![value] });
                    return false;
                }
                *resource += 1;
                decisions += 1;
                let verdicts = study.report(*trial, *resource, &[value]);
                !verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Stop | Verdict::Pause))
            });
            spent += begin.elapsed().as_secs_f64();
            let trials = study.history().trials().len();
            if trials >= [1_000, 10_000, 100_000][rates.len()] {
                rates.push(decisions as f64 / spent);
                (decisions, spent) = (0, 0.0);
            }
        }
        println!(
            "| {name} | {} | {:.0} | {:.0} | {:.0} |",
            study.history().trials().len(),
            rates[0],
            rates[1],
            rates[2]
        );
    }
}
