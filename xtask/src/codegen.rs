//! `cargo xtask codegen`: writes the wire crate's tables of operations and constraints from the
//! service models of an installed botocore.
//!
//! The models are data files of the Python package `botocore`; any release will do (`PYTHON` names
//! the interpreter that has it). Only the operations that the server answers are kept, so that the
//! tables stay small enough to read.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// Where the operations that are served stand, by service model.
const ROUTES: &str = "crates/server/src/api/routes.rs";
/// Folder of the plain resources, which declare SageMaker's operations that they have.
const RESOURCES: &str = "crates/server/src/api/resource_types";

/// Services by the name in their signatures, as `wire::Service` names them.
const SERVICES: &[(&str, &str)] = &[
    ("budgets", "Budgets"),
    ("cloudtrail", "CloudTrail"),
    ("iam", "Iam"),
    ("logs", "Logs"),
    ("monitoring", "CloudWatch"),
    ("sagemaker", "SageMaker"),
    ("sns", "Sns"),
    ("sts", "Sts"),
];

/// Shapes whose tables are wanted for themselves: what `Search` can ask for is what a record has.
const RECORDS: &[(&str, &[&str])] =
    &[("sagemaker", &["Experiment", "HyperParameterTuningJobSearchEntity", "TrainingJob", "Trial", "TrialComponent"])];

/// What our own command line may say beyond AWS's model, which AWS's clients refuse on their side:
/// shape, member, and the shape that has it.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("HyperParameterAlgorithmSpecification", "ContainerEntrypoint", "AlgorithmSpecification"),
    ("HyperParameterAlgorithmSpecification", "ContainerArguments", "AlgorithmSpecification"),
];

/// Prints botocore's version and the service models asked for as one JSON object.
const UNPACK: &str = r#"
import botocore, botocore.loaders, json, sys
loader = botocore.loaders.Loader()
models = {name: loader.load_service_model(name, "service-2") for name in sys.argv[1:]}
json.dump({"version": botocore.__version__, "models": models}, sys.stdout)
"#;

/// Rewrites `crates/wire/src/constraints/<model>.rs` for every service model in [`ROUTES`], hyphens
/// as underscores.
///
/// # Errors
/// There is no Python with botocore, its models lack a listed operation or have a shape of an
/// unknown kind, or a file cannot be written.
pub(crate) fn run(root: &Path) -> Result<()> {
    let folder = root.join("crates/wire/src/constraints");
    let routes = fs::read_to_string(root.join(ROUTES)).with_context(|| format!("cannot read {ROUTES}"))?;
    let mut served = served(&routes);
    ensure!(!served.is_empty(), "{ROUTES} has no operations");
    for entry in fs::read_dir(root.join(RESOURCES)).with_context(|| format!("cannot read {RESOURCES}"))? {
        served.entry("sagemaker".to_owned()).or_default().extend(declared(&fs::read_to_string(entry?.path())?));
    }
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let output = Command::new(&python)
        .args(["-c", UNPACK])
        .args(served.keys())
        .output()
        .with_context(|| format!("cannot run {python}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{python} cannot read botocore's models (is it installed? PYTHON names another interpreter): {stderr}");
    }
    let mut answer: Value = serde_json::from_slice(&output.stdout)?;
    for (shape, member, of) in EXTENSIONS {
        let shapes = &mut answer["models"]["sagemaker"]["shapes"];
        let copy = shapes[of]["members"][member].clone();
        ensure!(copy.is_object(), "the model's {of} has no {member}");
        shapes[shape]["members"][member] = copy;
    }
    let version = answer["version"].as_str().context("botocore has a version")?;
    for (service, operations) in &served {
        let path = folder.join(format!("{}.rs", service.replace('-', "_")));
        let text = table(version, service, &answer["models"][service], operations)
            .with_context(|| format!("service {service}"))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(&path).current_dir(root).status()?;
        ensure!(formatted.success(), "rustfmt failed on {}", path.display());
        eprintln!("codegen: {} (botocore {version})", path.display());
    }
    Ok(())
}

/// The operations in the source of the routes, by service model; without our own, which no model
/// has.
fn served(routes: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut served: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut model = None;
    for line in routes.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('"').and_then(|rest| rest.strip_suffix("\" {")) {
            model = Some(name.to_owned()).filter(|name| name != "shoal");
        } else if line == "}" {
            model = None;
        } else if let (Some(model), Some((operation, _))) = (&model, line.split_once('(')) {
            served.entry(model.clone()).or_default().insert(operation.to_owned());
        }
    }
    served
}

/// The operations in the source of a resource's declaration.
fn declared(source: &str) -> Vec<String> {
    let list =
        source.split_once("operations: &[").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The Rust source of one service model's table.
fn table(version: &str, service: &str, model: &Value, operations: &BTreeSet<String>) -> Result<String> {
    let shapes = &model["shapes"];
    let mut table = String::new();
    let mut wanted = BTreeSet::new();
    for operation in operations {
        let found = &model["operations"][operation];
        ensure!(found.is_object(), "the model has no operation {operation}, which {ROUTES} names");
        if let Some(input) = found["input"]["shape"].as_str() {
            collect(shapes, input, &mut wanted)?;
        }
        table.push_str(&row(operation, found, model)?);
    }
    let records: Vec<&str> =
        RECORDS.iter().filter(|(of, _)| *of == service).flat_map(|(_, shapes)| shapes.iter().copied()).collect();
    for record in &records {
        collect(shapes, record, &mut wanted)?;
    }
    let mut source = format!(
        "//! Operations of `{service}` and constraints of their inputs,\n\
         //! generated by `cargo xtask codegen` from botocore {version}'s service model: do not edit.\n\n\
         IMPORTS\n\n\
         /// The operations of `{service}` that are served.\n\
         pub(super) static OPERATIONS: &[Operation] = &[{table}];\n"
    );
    for name in &wanted {
        let visible = if records.contains(&name.as_str()) { "pub(super) " } else { "" };
        write!(source, "\n{visible}static {}: Shape = {};\n", identifier(name), shape(&shapes[name])?)?;
    }
    let needs = |name: &str| source.contains(&format!("{name} {{")) || source.contains(&format!("{name}::"));
    let pattern = if needs("Pattern") { "pattern::Pattern, " } else { "" };
    let shape = if needs("Member") { "shape::{Member, Shape}" } else { "shape::Shape" };
    let imports = format!("use crate::{{Operation, Service, {pattern}{shape}}};");
    Ok(source.replacen("IMPORTS", &imports, 1))
}

/// An operation as a Rust expression.
fn row(name: &str, operation: &Value, model: &Value) -> Result<String> {
    let (shapes, metadata) = (&model["shapes"], &model["metadata"]);
    let signed =
        metadata["signingName"].as_str().or(metadata["endpointPrefix"].as_str()).context("a model without a name")?;
    let service = SERVICES
        .iter()
        .find(|(scope, _)| *scope == signed)
        .with_context(|| format!("service {signed} is not known here"))?
        .1;
    let target = metadata["targetPrefix"].as_str().map_or_else(String::new, |prefix| format!("{prefix}.{name}"));
    let input = operation["input"]["shape"].as_str().map_or("Shape::Structure(&[])".to_owned(), identifier);
    let output = operation["output"]["shape"].as_str().map_or("None".to_owned(), |shape| {
        let member = |(name, member): (&String, &Value)| {
            let items = &shapes[member["shape"].as_str().unwrap_or_default()]["member"]["shape"];
            let items = &shapes[items.as_str().unwrap_or_default()];
            format!("({name:?}, &{:?})", members(items).map(|(name, _)| name).collect::<Vec<_>>())
        };
        format!("Some(&[{}])", members(&shapes[shape]).map(member).collect::<Vec<_>>().join(", "))
    });
    let errors = operation["errors"].as_array().into_iter().flatten();
    let errors: Vec<&str> = errors
        .map(|error| {
            let shape = error["shape"].as_str().context("an error without a shape")?;
            Ok(shapes[shape]["error"]["code"].as_str().unwrap_or(shape))
        })
        .collect::<Result<_>>()?;
    let (method, path) = (&operation["http"]["method"], &operation["http"]["requestUri"]);
    Ok(format!(
        "Operation {{ service: Service::{service}, name: {name:?}, target: {target:?}, http: ({method}, {path}), input: Some(&{input}), \
         output: {output}, errors: &{errors:?} }},"
    ))
}

/// A structure's members, in the model's order.
fn members(shape: &Value) -> impl Iterator<Item = (&String, &Value)> {
    shape["members"].as_object().into_iter().flatten()
}

/// A shape and all that it is made of.
fn collect(shapes: &Value, name: &str, wanted: &mut BTreeSet<String>) -> Result<()> {
    if !wanted.insert(name.to_owned()) {
        return Ok(());
    }
    let shape = shapes.get(name).with_context(|| format!("the model has no shape {name}"))?;
    for reference in
        members(shape).map(|(_, member)| member).chain(["member", "key", "value"].iter().map(|part| &shape[part]))
    {
        if let Some(part) = reference["shape"].as_str() {
            collect(shapes, part, wanted)?;
        }
    }
    Ok(())
}

/// A shape as a Rust expression.
fn shape(shape: &Value) -> Result<String> {
    let part = |name: &str| {
        Ok::<_, anyhow::Error>(identifier(shape[name]["shape"].as_str().with_context(|| format!("no {name}"))?))
    };
    let bound = |name: &str, absent: &str| shape[name].as_u64().map_or(absent.to_owned(), |bound| bound.to_string());
    let size = format!("min: {}, max: {}", bound("min", "0"), bound("max", "u64::MAX"));
    Ok(match shape["type"].as_str().context("a shape without a type")? {
        "structure" => {
            let required: BTreeSet<_> =
                shape["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            // Botocore keeps the model's order, which is the order in which AWS reports errors.
            let mut text = "Shape::Structure(&[".to_owned();
            for (name, member) in members(shape) {
                let kind = identifier(member["shape"].as_str().context("a member without a shape")?);
                write!(
                    text,
                    "Member {{ name: {name:?}, required: {}, shape: &{kind} }},",
                    required.contains(name.as_str())
                )?;
            }
            text + "])"
        }
        "string" if shape["enum"].is_array() => format!("Shape::Enum(&{})", shape["enum"]),
        "string" => {
            let pattern = shape["pattern"]
                .as_str()
                .map_or("None".to_owned(), |pattern| format!("Some(Pattern::new({pattern:?}))"));
            format!("Shape::String {{ {size}, pattern: {pattern} }}")
        }
        // Base64 in all protocols that are served.
        "blob" => "Shape::String { min: 0, max: u64::MAX, pattern: None }".to_owned(),
        "list" => format!("Shape::List {{ {size}, member: &{} }}", part("member")?),
        "map" => format!("Shape::Map {{ {size}, key: &{}, value: &{} }}", part("key")?, part("value")?),
        kind @ ("integer" | "long" | "float" | "double") => {
            let bits = match kind {
                "integer" => "Some(32)",
                "long" => "Some(64)",
                _ => "None",
            };
            let limit =
                |name: &str, absent: &str| shape[name].as_f64().map_or(absent.to_owned(), |limit| format!("{limit:?}"));
            format!(
                "Shape::Number {{ bits: {bits}, min: {}, max: {} }}",
                limit("min", "f64::NEG_INFINITY"),
                limit("max", "f64::INFINITY")
            )
        }
        "boolean" => "Shape::Boolean".to_owned(),
        "timestamp" => "Shape::Timestamp".to_owned(),
        other => bail!("shapes of type {other} are not handled yet"),
    })
}

/// `S3DataSource` becomes `S3_DATA_SOURCE`, `VolumeSizeInGB` becomes `VOLUME_SIZE_IN_GB`.
fn identifier(name: impl AsRef<str>) -> String {
    let letters: Vec<char> = name.as_ref().chars().collect();
    let mut text = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_lower = at > 0 && (letters[at - 1].is_lowercase() || letters[at - 1].is_ascii_digit());
        let before_lower =
            at > 0 && letters[at - 1].is_uppercase() && letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_lower || before_lower) {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_from_the_routes() {
        let found = served(
            "x! {\n    \"iam\" {\n        GetRole(a) => b(a),\n    }\n    \"shoal\" {\n        Own(a) => c(a),\n    }\n}\nfn f(a) {}\n",
        );
        assert_eq!(found, BTreeMap::from([("iam".to_owned(), BTreeSet::from(["GetRole".to_owned()]))]));
        assert_eq!(declared("x: [\"no\"], operations: &[\"CreateA\", \"ListAs\"], y: \"no\""), ["CreateA", "ListAs"]);
        assert_eq!(declared("operations: &'static [&'static str],"), Vec::<String>::new());
    }
}
