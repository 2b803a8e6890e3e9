use super::*;

const SPACE: &str = r#"[
    {"name":"lr","type":"continuous","min":1e-6,"max":1.0,"scaling":"Logarithmic"},
    {"name":"layers","type":"integer","min":1,"max":12.0},
    {"name":"opt","type":"categorical","values":["sgd","adam"]},
    {"name":"width","type":"categorical","values":[64,128,true]},
    {"name":"momentum","type":"continuous","min":0.0,"max":0.999,"scaling":"ReverseLogarithmic","condition":{"parent":"opt","in":["sgd"]}}]"#;

fn session() -> Session {
    let mut cpu_s = 1.0;
    Session::new("random", move || {
        cpu_s += 0.5;
        Usage { rss_mib: 3.25, cpu_s }
    })
}

fn say(session: &mut Session, line: &str) -> Json {
    serde_json::from_str(&session.handle(line).unwrap()).unwrap()
}

fn init(session: &mut Session, more: &str) -> Json {
    let space = SPACE.replace('\n', "");
    say(session, &format!(r#"{{"op":"init","space":{space},"seed":7,"budget":200,"workers":1{more}}}"#))
}

#[test]
fn a_single_conversation() {
    let mut session = session();
    assert_eq!(init(&mut session, r#","mode":"single""#), json!({"ok": true}));
    let mut conditional = 0;
    for number in 0..40 {
        let asked = say(&mut session, r#"{"op":"ask"}"#);
        assert_eq!(asked["id"], format!("t{number}"));
        assert_eq!(asked.as_object().unwrap().len(), 2);
        let config = asked["config"].as_object().unwrap();
        assert!(config["layers"].is_i64());
        assert!([json!(64), json!(128), json!(true)].contains(&config["width"]));
        assert_eq!(config.contains_key("momentum"), config["opt"] == "sgd");
        conditional += usize::from(config.contains_key("momentum"));
        let value = if number == 3 { "null".to_owned() } else { config["lr"].to_string() };
        assert_eq!(
            say(&mut session, &format!(r#"{{"op":"tell","id":"t{number}","value":{value}}}"#)),
            json!({"ok": true})
        );
    }
    assert!((5..35).contains(&conditional));
    let trials = session.study().unwrap().history().trials();
    assert_eq!(trials[3].state, TrialState::Failed);
    assert_eq!(trials.iter().filter(|trial| trial.state == TrialState::Completed).count(), 39);
    assert_eq!(say(&mut session, r#"{"op":"stat"}"#), json!({"rss_mib": 3.25, "cpu_s": 0.5}));
    assert_eq!(session.handle(r#"{"op":"quit"}"#), None);
    assert!(session.is_over());
}

#[test]
fn reports_and_ends_of_a_multi_fidelity_conversation() {
    let mut session = session();
    assert_eq!(init(&mut session, r#","mode":"mf","max_resource":3,"min_resource":1,"eta":3"#), json!({"ok": true}));
    let asked = say(&mut session, r#"{"op":"ask"}"#);
    assert_eq!((&asked["from"], &asked["to"]), (&json!(0), &Json::Null));
    for resource in 1..=3 {
        let line = format!(r#"{{"op":"report","id":"t0","resource":{resource},"value":0.{resource}}}"#);
        assert_eq!(say(&mut session, &line), json!({"decision": "continue"}));
    }
    assert_eq!(say(&mut session, r#"{"op":"done","id":"t0","resource":3}"#), json!({"ok": true}));
    let trial = session.study().unwrap().history().trial(0).unwrap();
    assert_eq!((trial.state, trial.value()), (TrialState::Completed, Some(0.3)));
    assert_eq!(say(&mut session, r#"{"op":"report","id":"t0","resource":4,"value":0.4}"#), json!({"decision": "stop"}));
}

#[test]
fn warm_starts_and_values_that_are_no_numbers() {
    let mut session = session();
    init(&mut session, r#","objectives":["maximize","minimize"]"#);
    let inject = r#"{"op":"inject","config":{"lr":1.0000000000000002,"layers":3.0,"opt":"adam","width":true,"momentum":5},"values":[0.4,1]}"#;
    assert_eq!(say(&mut session, inject), json!({"ok": true}));
    assert_eq!(say(&mut session, r#"{"op":"ask"}"#)["id"], "t1");
    assert_eq!(say(&mut session, r#"{"op":"tell","id":"t1","values":[NaN, -Infinity]}"#), json!({"ok": true}));
    let trials = session.study().unwrap().history().trials();
    assert_eq!(trials[0].values, [-0.4, 1.0]);
    assert!(trials[0].config.0[4].is_none());
    assert_eq!(trials[1].state, TrialState::Failed);
    assert_eq!(request::without_nan(r#"{"NaN":"a\"NaN","v":NaN}"#).unwrap(), r#"{"NaN":"a\"NaN","v":null}"#);
}

#[test]
fn the_same_seed_gives_the_same_conversation() {
    let run = || {
        let mut session = session();
        init(&mut session, "");
        (0..5).map(|_| session.handle(r#"{"op":"ask"}"#).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let mut session = session();
    let check = |session: &mut Session, line: &str, expected: &str| {
        let reply = say(session, line);
        assert!(
            reply["error"].as_str().is_some_and(|text| text.contains(expected)),
            "{line} -> {reply}, expected {expected}"
        );
    };
    check(&mut session, r#"{"op":"ask"}"#, "ask: there is no study yet: send init first");
    check(&mut session, "", "not a request, one JSON object a line");
    check(&mut session, r#"{"id":"t0"}"#, "needs \"op\"");
    check(&mut session, r#"{"op":"aks"}"#, "there is no operation \"aks\"; there are: init, ask");
    check(&mut session, r#"{"op":"init","seed":1}"#, "init: missing field `space`");
    let one = |parameter: &str| format!(r#"{{"op":"init","seed":1,"space":[{parameter}]}}"#);
    for (parameter, expected) in [
        (r#"{"type":"integer"}"#, "needs a \"name\""),
        (r#"{"name":"x"}"#, "parameter x: needs a \"type\": continuous, integer or categorical"),
        (r#"{"name":"x","type":"integer","min":1.5,"max":2}"#, "parameter x: needs \"min\", a whole number"),
        (
            r#"{"name":"x","type":"continuous","min":0,"max":1,"scaling":"Log"}"#,
            "there are: Linear, Logarithmic, ReverseLogarithmic, Auto",
        ),
        (r#"{"name":"x","type":"continuous","min":0,"max":1,"scaling":"Logarithmic"}"#, "needs values above 0"),
        (r#"{"name":"x","type":"categorical"}"#, "needs \"values\", a list"),
        (r#"{"name":"x","type":"categorical","values":[1,1]}"#, "has the value \"1\" twice"),
        (
            r#"{"name":"x","type":"integer","min":1,"max":2,"condition":{"parent":"y","in":[1]}}"#,
            "its parent y does not exist",
        ),
    ] {
        check(&mut session, &one(parameter), expected);
    }
    check(&mut session, r#"{"op":"init","space":[],"seed":1,"mode":"mf"}"#, "mode mf needs \"max_resource\"");
    check(
        &mut session,
        r#"{"op":"init","space":[],"seed":1,"searcher":"newton"}"#,
        "there is no searcher \"newton\"; there are: random",
    );
    check(
        &mut session,
        r#"{"op":"init","space":[],"seed":1,"objectives":["up"]}"#,
        "neither \"minimize\" nor \"maximize\"",
    );
    check(&mut session, r#"{"op":"init","space":[],"seed":"x"}"#, "\"seed\" must be a whole number");
    check(
        &mut session,
        r#"{"op":"init","space":[],"seed":1}"#,
        "init: the space is empty, so there is nothing to search; give it a parameter",
    );
    assert!(session.study().is_none());
    init(&mut session, "");
    check(&mut session, r#"{"op":"tell","id":"t5","value":1}"#, "tell: there is no trial \"t5\"");
    check(&mut session, r#"{"op":"tell","value":1}"#, "tell: needs \"id\"");
    say(&mut session, r#"{"op":"ask"}"#);
    check(&mut session, r#"{"op":"tell","id":"t0"}"#, "tell: needs \"value\"");
    check(
        &mut session,
        r#"{"op":"tell","id":"t0","values":[1,2]}"#,
        "tell: 2 values for 1 objectives: give \"value\", a number",
    );
    check(
        &mut session,
        r#"{"op":"report","id":"t0","resource":0,"value":1}"#,
        "needs \"resource\", a whole number from 1",
    );
    check(
        &mut session,
        r#"{"op":"inject","config":{"lr":2},"value":1}"#,
        "inject: parameter lr: 2 is not in its range",
    );
    check(
        &mut session,
        r#"{"op":"inject","config":{"speed":2},"value":1}"#,
        "parameter speed: is not in the space; there are: lr, layers",
    );
    assert_eq!(say(&mut session, r#"{"op":"tell","id":"t0","value":1}"#), json!({"ok": true}));
    check(
        &mut session,
        r#"{"op":"tell","id":"t0","value":0}"#,
        "tell: trial \"t0\" has been told its result already, and keeps it",
    );
    let study = session.study().unwrap();
    assert_eq!(
        (study.records().len(), study.best().and_then(|best| study.history().trial(best)?.value())),
        (2, Some(1.0))
    );
}
