//! Parameters that newer libraries dropped: translated where an equivalent exists, with one log
//! line each.

use std::collections::BTreeMap;

use super::failure::Failure;

/// Rewrites the library's parameters in place for the current library and returns what to tell the
/// user.
pub(super) fn translate(parameters: &mut BTreeMap<String, String>, hosts: usize) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    if parameters.get("tree_method").is_some_and(|method| method == "gpu_hist") {
        parameters.insert("tree_method".into(), "hist".into());
        notes.push("tree_method gpu_hist was removed in XGBoost 3.1: training with tree_method hist on the CPU".into());
    }
    if parameters.get("objective").is_some_and(|objective| objective == "reg:linear") {
        parameters.insert("objective".into(), "reg:squarederror".into());
        notes.push("objective reg:linear is now named reg:squarederror".into());
    }
    if let Some(epsilon) = parameters.remove("sketch_eps") {
        let bins = epsilon.parse::<f64>().ok().map(|epsilon| (1.0 / epsilon).round().clamp(2.0, 65_536.0) as u32);
        match bins {
            Some(bins)
                if parameters.get("tree_method").is_some_and(|method| method == "approx")
                    && !parameters.contains_key("max_bin") =>
            {
                parameters.insert("max_bin".into(), bins.to_string());
                notes.push(format!(
                    "sketch_eps was removed in XGBoost 1.6: using max_bin {bins} for sketch_eps {epsilon}"
                ));
            }
            _ => notes.push(
                "sketch_eps was removed in XGBoost 1.6 and only concerned tree_method approx without max_bin: ignored"
                    .into(),
            ),
        }
    }
    if let Some(updater) = parameters.get_mut("updater") {
        if updater.contains("grow_skmaker") {
            *updater = updater.replace("grow_skmaker", "grow_histmaker");
            notes.push("updater grow_skmaker was removed in XGBoost 1.1: using grow_histmaker".into());
        }
        if updater.contains("distcol") {
            return Err(Failure::User(
                "updater distcol was removed in XGBoost 1.1 and has no equivalent: leave it out".into(),
            ));
        }
    }
    if hosts > 1 {
        notes.extend(over_hosts(parameters));
    }
    match parameters.remove("dsplit").as_deref() {
        Some("col") if hosts > 1 => {
            return Err(Failure::User(
                "dsplit col (columns split over hosts) is not supported: every host must have all columns".into(),
            ));
        }
        Some(_) => {
            notes.push("dsplit was removed from XGBoost: rows are split, which is what dsplit row asked for".into());
        }
        None => {}
    }
    for (name, why) in [
        ("predictor", "was removed in XGBoost 2.0, the device decides"),
        ("deterministic_histogram", "was removed in XGBoost 1.7, histograms are deterministic"),
        ("prob_buffer_row", "was removed from XGBoost"),
        ("lambda_bias", "was removed in XGBoost 1.0"),
    ] {
        if parameters.remove(name).is_some() {
            notes.push(format!("{name} {why}: ignored"));
        }
    }
    if parameters.remove("use_dask_gpu_training").is_some_and(|value| value == "true") {
        notes.push("use_dask_gpu_training is not needed: hosts train together through XGBoost's own collective".into());
    }
    Ok(notes)
}

/// As AWS's image, which trains on: the library's exact method needs all rows on one host.
fn over_hosts(parameters: &mut BTreeMap<String, String>) -> Option<String> {
    const INSTEAD: &str = "needs all rows on one instance: training with tree_method approx";
    if let Some(updater) =
        parameters.get_mut("updater").filter(|updater| updater.split(',').any(|item| item.trim() == "grow_colmaker"))
    {
        *updater = updater.replace("grow_colmaker", "grow_histmaker");
        if parameters.get("tree_method").is_some_and(|method| method == "exact") {
            parameters.insert("tree_method".into(), "approx".into());
        }
        return Some(format!("updater grow_colmaker {INSTEAD}"));
    }
    let method = parameters.get_mut("tree_method").filter(|method| *method == "exact")?;
    *method = "approx".into();
    Some(format!("tree_method exact {INSTEAD}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &[(&str, &str)], expected: &[(&str, &str)], notes: usize) {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let mut parameters = map(given);
        let told = translate(&mut parameters, 1).expect("translatable");
        assert_eq!(parameters, map(expected), "{given:?}");
        assert_eq!(told.len(), notes, "{told:?}");
    }

    #[test]
    fn dropped_parameters_become_what_they_meant() {
        check(&[("eta", "0.1"), ("tree_method", "hist")], &[("eta", "0.1"), ("tree_method", "hist")], 0);
        check(&[("tree_method", "gpu_hist"), ("predictor", "gpu_predictor")], &[("tree_method", "hist")], 2);
        check(&[("objective", "reg:linear")], &[("objective", "reg:squarederror")], 1);
        check(&[("sketch_eps", "0.03"), ("tree_method", "approx")], &[("max_bin", "33"), ("tree_method", "approx")], 1);
        check(
            &[("sketch_eps", "0.03"), ("tree_method", "approx"), ("max_bin", "9")],
            &[("max_bin", "9"), ("tree_method", "approx")],
            1,
        );
        check(&[("updater", "grow_skmaker,prune")], &[("updater", "grow_histmaker,prune")], 1);
        check(&[("dsplit", "row"), ("use_dask_gpu_training", "false")], &[], 1);
        check(&[("dsplit", "col"), ("use_dask_gpu_training", "true")], &[], 2);
    }

    #[test]
    fn what_has_no_equivalent_is_refused() {
        let refused = |name: &str, value: &str, hosts| {
            translate(&mut BTreeMap::from([(name.to_owned(), value.to_owned())]), hosts).is_err()
        };
        assert!(refused("dsplit", "col", 2));
        assert!(refused("updater", "distcol", 1));
    }

    #[test]
    fn the_exact_method_over_hosts_is_the_approximate_one() {
        for (name, value, hosts, expected) in [
            ("tree_method", "exact", 1, "exact"),
            ("tree_method", "exact", 2, "approx"),
            ("tree_method", "hist", 2, "hist"),
            ("updater", "grow_colmaker,prune", 1, "grow_colmaker,prune"),
            ("updater", "grow_colmaker,prune", 2, "grow_histmaker,prune"),
        ] {
            let mut parameters = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            let notes = translate(&mut parameters, hosts).expect("translatable");
            assert_eq!(
                (parameters[name].as_str(), notes.len()),
                (expected, usize::from(value != expected)),
                "{name} {value}"
            );
        }
    }
}
