//! Options that make no sense are refused, and the text says what would make sense.

use shoal_tuner::{SchedulerSpec, Study, StudySpec};

use crate::world::line;

#[test]
fn bad_options_are_refused_at_once() {
    let cases = [
        (
            r#"{"kind":"asha","max_resource":9,"eta":1}"#,
            "scheduler asha: eta is 1: of each rung 1 / eta goes on, so it must be at least 2",
        ),
        (r#"{"kind":"asha","max_resource":9,"min_resource":0}"#, "min_resource is 0: it must be at least 1"),
        (r#"{"kind":"asha","max_resource":9,"min_resource":10}"#, "min_resource 10 is above max_resource 9"),
        (r#"{"kind":"hyperband","max_resource":0}"#, "min_resource 1 is above max_resource 0"),
        (
            r#"{"kind":"hyperband","max_resource":81,"brackets":6}"#,
            "brackets is 6: from 1 to 81 with eta 3 there may be 1 to 5",
        ),
        (r#"{"kind":"hyperband","max_resource":81,"brackets":0}"#, "there may be 1 to 5"),
        (r#"{"kind":"median","min_resource":0}"#, "min_resource is 0"),
        (r#"{"kind":"median","min_trials":0}"#, "min_trials is 0"),
        (r#"{"kind":"behind","percent":0}"#, "percent is 0: it must be a number above 0"),
        (r#"{"kind":"behind","min_resource":0}"#, "min_resource is 0"),
        (r#"{"kind":"round_robin","width":1,"rule":{"kind":"behind"}}"#, "width is 1"),
        (
            r#"{"kind":"round_robin","width":4,"rule":{"kind":"asha","max_resource":9}}"#,
            "its rule is asha in its promotion form, which pauses",
        ),
        (
            r#"{"kind":"round_robin","width":4,"rule":{"kind":"asha","form":"stopping","max_resource":9,"eta":0}}"#,
            "eta is 0",
        ),
        (r#"{"kind":"pbt","max_resource":9,"population":1}"#, "population is 1"),
        (r#"{"kind":"pbt","max_resource":9,"interval":0}"#, "interval is 0"),
        (r#"{"kind":"pbt","max_resource":9,"interval":9}"#, "interval 9 is not below max_resource 9"),
        (r#"{"kind":"pbt","max_resource":9,"quantile":0.6}"#, "quantile is 0.6"),
        (r#"{"kind":"pbt","max_resource":9,"resample":2}"#, "resample is 2"),
    ];
    for (text, expected) in cases {
        let scheduler: SchedulerSpec = serde_json::from_str(text).unwrap();
        let error = Study::new(StudySpec { scheduler, ..StudySpec::random(line(), 1) }).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (text, expected) in [
        (r#"{"kind":"asha"}"#, "missing field `max_resource`"),
        (r#"{"kind":"median","min_trails":3}"#, "unknown field `min_trails`"),
        (r#"{"kind":"halving"}"#, "unknown variant `halving`"),
    ] {
        let error = serde_json::from_str::<SchedulerSpec>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_is_not_said_is_not_stored_differently() {
    for text in [
        r#"{"kind":"median"}"#,
        r#"{"kind":"behind","percent":20.0}"#,
        r#"{"kind":"asha","form":"stopping","max_resource":27}"#,
        r#"{"kind":"hyperband","max_resource":27,"eta":4}"#,
        r#"{"kind":"pbt","max_resource":27}"#,
        r#"{"kind":"round_robin","width":3,"rule":{"kind":"none"}}"#,
    ] {
        let spec: SchedulerSpec = serde_json::from_str(text).unwrap();
        let again: SchedulerSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(spec, again);
    }
}
