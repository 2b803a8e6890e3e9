//! Instance types: sizes and prices.
//!
//! The table that comes with Shoal is `catalog.txt`; a user's file of the same form is merged over
//! it. One type a line, columns separated by blanks, `#` starts a comment:
//!
//! ```text
//! # name        vcpus  memory_gib  gpus  gpu_kind  usd_per_hour
//! ml.m5.xlarge  4      16          0     -         0.23
//! ```

use std::collections::BTreeMap;

use shoal_tuner::edits;

use crate::Rejection;

/// A size that one can ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct InstanceType {
    /// `ml.m5.xlarge`.
    pub name: String,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// GPUs (or other accelerators).
    pub gpus: u32,
    /// `A10G`; `-` without GPUs.
    pub gpu_kind: String,
    /// US dollars per instance and hour, on demand: for "what would this have cost".
    pub usd_per_hour: f64,
}

/// All instance types that are known here.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    types: BTreeMap<String, InstanceType>,
}

/// A catalogue's text is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Not six columns.
    #[error("line {line}: {found} columns instead of 6 (name, vcpus, memory_gib, gpus, gpu_kind, usd_per_hour)")]
    Columns {
        /// From 1.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A number is not one, or out of its range.
    #[error("line {line}: {column} is \"{value}\", which is not {expected}")]
    Number {
        /// From 1.
        line: usize,
        /// Its name.
        column: &'static str,
        /// As it stands there.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// AWS's clients refuse other names.
    #[error("line {line}: instance type \"{name}\" does not start with \"ml.\"")]
    Name {
        /// From 1.
        line: usize,
        /// As it stands there.
        name: String,
    },
    /// Two lines for one name.
    #[error("line {line}: instance type {name} stands in line {first} already")]
    Twice {
        /// From 1.
        line: usize,
        /// Which.
        name: String,
        /// From 1.
        first: usize,
    },
}

impl Default for Catalog {
    /// The table that comes with Shoal.
    fn default() -> Catalog {
        let types = table(include_str!("catalog.txt")).expect("the embedded table is parsed by a test");
        Catalog { types }
    }
}

impl Catalog {
    /// A user's table merged over the one that comes with Shoal: its lines win.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Catalog, CatalogError> {
        let mut catalog = Catalog::default();
        catalog.types.append(&mut table(text)?);
        Ok(catalog)
    }

    /// By name.
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        self.types.get(name)
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = &InstanceType> {
        self.types.values()
    }

    /// By name, or a refusal that names near matches.
    pub(crate) fn find(&self, name: &str) -> Result<&InstanceType, Rejection> {
        self.get(name).ok_or_else(|| {
            let near = self.near(name);
            let hint = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
            Rejection::UnknownInstanceType(format!(
                "Value '{name}' at 'resourceConfig.instanceType' failed to satisfy constraint: the instance catalogue \
                 has no such type{hint}"
            ))
        })
    }

    /// Up to three names within three edits, nearest first.
    fn near(&self, name: &str) -> Vec<&str> {
        let mut near: Vec<_> = self
            .types
            .keys()
            .map(|known| (edits(known, name), known.as_str()))
            .filter(|(distance, _)| *distance <= 3)
            .collect();
        near.sort_unstable();
        near.into_iter().take(3).map(|(_, known)| known).collect()
    }
}

fn table(text: &str) -> Result<BTreeMap<String, InstanceType>, CatalogError> {
    let mut types = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let columns: Vec<&str> = text.split('#').next().unwrap_or_default().split_whitespace().collect();
        if columns.is_empty() {
            continue;
        }
        let kind = row(line, &columns)?;
        if let Some(first) = lines.insert(kind.name.clone(), line) {
            return Err(CatalogError::Twice { line, name: kind.name, first });
        }
        types.insert(kind.name.clone(), kind);
    }
    Ok(types)
}

fn row(line: usize, columns: &[&str]) -> Result<InstanceType, CatalogError> {
    let &[name, cpus, memory, gpus, gpu_kind, price] = columns else {
        return Err(CatalogError::Columns { line, found: columns.len() });
    };
    if !name.starts_with("ml.") {
        return Err(CatalogError::Name { line, name: name.to_owned() });
    }
    let wrong =
        |column, value: &str, expected| CatalogError::Number { line, column, value: value.to_owned(), expected };
    let real = |value: &str| value.parse::<f64>().ok().filter(|number| (0.0..1e6).contains(number));
    let memory_gib =
        real(memory).filter(|gib| *gib > 0.0).ok_or_else(|| wrong("memory_gib", memory, "a positive number"))?;
    Ok(InstanceType {
        name: name.to_owned(),
        cpus: cpus.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong("vcpus", cpus, "a positive whole number"))?,
        memory_bytes: (memory_gib * f64::from(1 << 30)).round() as u64,
        gpus: gpus.parse().map_err(|_| wrong("gpus", gpus, "a whole number"))?,
        gpu_kind: gpu_kind.to_owned(),
        usd_per_hour: real(price).ok_or_else(|| wrong("usd_per_hour", price, "a number from 0"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_table_holds_what_it_should() {
        let catalog = Catalog::default();
        let check = |name: &str, cpus, gib: u64, gpus, gpu_kind: &str| {
            let kind = catalog.get(name).unwrap_or_else(|| panic!("{name} lacks"));
            let found = (kind.cpus, kind.memory_bytes, kind.gpus, kind.gpu_kind.as_str());
            assert_eq!(found, (cpus, gib << 30, gpus, gpu_kind), "{name}");
        };
        check("ml.m5.xlarge", 4, 16, 0, "-");
        check("ml.c5n.18xlarge", 72, 192, 0, "-");
        check("ml.r5.24xlarge", 96, 768, 0, "-");
        check("ml.g5.48xlarge", 192, 768, 8, "A10G");
        check("ml.p4d.24xlarge", 96, 1152, 8, "A100");
        assert!(catalog.iter().all(|kind| kind.usd_per_hour > 0.0 && (kind.gpus > 0) == (kind.gpu_kind != "-")));
    }

    #[test]
    fn a_users_lines_win_and_may_add() {
        let catalog = Catalog::parse("# ours\nml.m5.xlarge 2 1.5 0 - 0 # a small one\n\nml.box.large 4 8 1 RTX 0.5\n")
            .expect("a good table");
        assert_eq!(catalog.get("ml.m5.xlarge").map(|kind| (kind.cpus, kind.memory_bytes)), Some((2, 3 << 29)));
        assert_eq!(catalog.get("ml.box.large").map(|kind| kind.gpu_kind.as_str()), Some("RTX"));
        assert!(catalog.get("ml.m5.large").is_some());
    }

    #[test]
    fn a_wrong_line_is_named() {
        let check = |text: &str, error: &str| assert_eq!(Catalog::parse(text).expect_err(text).to_string(), error);
        check("ml.a 1 1 0 -", "line 1: 5 columns instead of 6 (name, vcpus, memory_gib, gpus, gpu_kind, usd_per_hour)");
        check("\n\nm5.xlarge 1 1 0 - 1", "line 3: instance type \"m5.xlarge\" does not start with \"ml.\"");
        check("ml.a 0 1 0 - 1", "line 1: vcpus is \"0\", which is not a positive whole number");
        check("ml.a 1 nan 0 - 1", "line 1: memory_gib is \"nan\", which is not a positive number");
        check("ml.a 1 1 -1 - 1", "line 1: gpus is \"-1\", which is not a whole number");
        check("ml.a 1 1 0 - free", "line 1: usd_per_hour is \"free\", which is not a number from 0");
        check("ml.a 1 1 0 - 1\nml.a 1 1 0 - 1", "line 2: instance type ml.a stands in line 1 already");
    }
}
