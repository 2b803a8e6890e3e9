//! Spaces that the pairs are tried on.

/// Everything at once: scalings, integers, choices, conditions in two levels.
pub(crate) const MIXED: &str = r#"[
    {"name":"lr","type":"continuous","min":1e-6,"max":1,"scaling":"Logarithmic"},
    {"name":"opt","type":"categorical","values":["sgd","adam","rms"]},
    {"name":"momentum","type":"continuous","min":0,"max":0.999,"scaling":"ReverseLogarithmic","condition":{"parent":"opt","in":["sgd"]}},
    {"name":"layers","type":"integer","min":1,"max":3},
    {"name":"second","type":"integer","min":16,"max":2048,"scaling":"Logarithmic","condition":{"parent":"layers","in":["2","3"]}},
    {"name":"third","type":"categorical","values":["a","b"],"condition":{"parent":"layers","in":["3"]}},
    {"name":"drop","type":"continuous","min":-0.5,"max":0.7}]"#;

/// Twelve configurations.
pub(crate) const SMALL: &str = r#"[{"name":"a","type":"categorical","values":["x","y","z"]},{"name":"b","type":"categorical","values":["u","v"]},
    {"name":"c","type":"integer","min":4,"max":5}]"#;

/// One configuration: no number of trials finds another.
const POINT: &str = r#"[{"name":"a","type":"continuous","min":0.25,"max":0.25},{"name":"b","type":"integer","min":7,"max":7},
    {"name":"c","type":"categorical","values":["only"]}]"#;

pub(crate) const ALL: &[(&str, &str)] = &[("mixed", MIXED), ("small", SMALL), ("point", POINT)];

/// Ranges at the ends of what numbers can be.
pub(crate) const EXTREME: &[(&str, &str)] = &[
    (
        "wide logarithm",
        r#"[{"name":"x","type":"continuous","min":5e-324,"max":1.7976931348623157e308,"scaling":"Logarithmic"}]"#,
    ),
    ("tiny range", r#"[{"name":"x","type":"continuous","min":0.1,"max":0.10000000000000002}]"#),
    (
        "close to one",
        r#"[{"name":"x","type":"continuous","min":0,"max":0.9999999999999999,"scaling":"ReverseLogarithmic"}]"#,
    ),
    ("all integers", r#"[{"name":"x","type":"integer","min":-9223372036854775808,"max":9223372036854775807}]"#),
    ("large integers", r#"[{"name":"x","type":"integer","min":1,"max":9223372036854775807,"scaling":"Logarithmic"}]"#),
    ("negative", r#"[{"name":"x","type":"continuous","min":-1e300,"max":-1e-300}]"#),
    ("names", r#"[{"name":"x","type":"categorical","values":[""," ","ü\"\n","1","1.0"]}]"#),
];
