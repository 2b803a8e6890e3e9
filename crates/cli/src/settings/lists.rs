//! Settings that are lists of names with values: `a=1,b=2`, or a table of `shoal.toml`.

/// Those that may be tables there, and the table around each, if it has one.
const TABLES: [(Option<&str>, &str); 2] = [(None, "file_systems"), (Some("sso"), "keys")];

/// The tables as flags would have them.
pub(super) fn as_text(table: &mut toml::Table) {
    for (around, name) in TABLES {
        let table = match around {
            None => Some(&mut *table),
            Some(around) => table.get_mut(around).and_then(toml::Value::as_table_mut),
        };
        if let Some(value) = table.and_then(|table| table.get_mut(name))
            && let toml::Value::Table(members) = value
        {
            let entry = |(name, value): (&String, &toml::Value)| match value {
                toml::Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            };
            *value = toml::Value::String(Vec::from_iter(members.iter().map(entry)).join(","));
        }
    }
}

/// The names and values of a list; the value is empty where there is none.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let entries = text.split(',').map(str::trim).filter(|entry| !matches!(*entry, "" | "none"));
    entries.map(|entry| entry.split_once('=').map_or((entry, ""), |(name, value)| (name.trim(), value.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_lists() {
        let file =
            "[file_systems]\nfs-1 = \"/srv\"\n[sso]\nissuer = \"x\"\nkeys = { \"anna@x.org\" = \"anna\", n = 7 }";
        let mut table: toml::Table = toml::from_str(file).unwrap();
        as_text(&mut table);
        assert_eq!(table["file_systems"].as_str(), Some("fs-1=/srv"));
        assert_eq!(table["sso"]["keys"].as_str(), Some("anna@x.org=anna,n=7"));
        let listed = Vec::from_iter(pairs(" a=1, b = 2=3 ,c,,none"));
        assert_eq!(listed, [("a", "1"), ("b", "2=3"), ("c", "")]);
    }
}
