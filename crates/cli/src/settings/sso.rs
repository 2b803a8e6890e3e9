//! Single sign-on to the console.

use std::collections::BTreeMap;

use anyhow::Result;
use shoal_server::SsoOptions;

use super::{Origin, Typed, lists, wrong};

const KEYS: &str = "sso_keys";

pub(super) fn sso(typed: &Typed) -> Result<Option<SsoOptions>> {
    let given = |name: &str| Some(typed.value(name)).filter(|value| *value != "none").map(str::to_owned);
    let Some(issuer) = given("sso_issuer") else {
        let needing = ["sso_client_id", "sso_client_secret_file", KEYS, "sso_url"];
        return match needing.into_iter().find(|name| *typed.origin(name) != Origin::Default) {
            Some(name) => Err(wrong(typed, name, "of use without sso_issuer")),
            None => Ok(None),
        };
    };
    let has_secret = given("sso_client_secret_file").is_some();
    let mut keys = BTreeMap::new();
    for (value, name) in lists::pairs(typed.value(KEYS)) {
        if value.is_empty() || name.is_empty() || keys.insert(value.to_owned(), name.to_owned()).is_some() {
            let wanted = "a list of different values with names of keys, anna@example.org=anna, admins=owner";
            return Err(wrong(typed, KEYS, wanted));
        }
    }
    let options = SsoOptions {
        issuer,
        client_id: given("sso_client_id").unwrap_or_default(),
        client_secret_file: has_secret.then(|| typed.path("sso_client_secret_file")).transpose()?,
        scopes: typed.value("sso_scopes").to_owned(),
        claim: typed.value("sso_claim").to_owned(),
        keys,
        url: given("sso_url"),
    };
    options.check().map_err(|(name, wanted)| wrong(typed, name, &wanted))?;
    Ok(Some(options))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(file: &str) -> Result<Option<SsoOptions>> {
        let read = |path: &Path| Ok((path == Path::new("/data/shoal.toml")).then(|| file.to_owned()));
        let flags = [("data_dir".to_owned(), "/data".to_owned())].into();
        sso(&Typed::gather(&flags, &|_| None, &read)?)
    }

    #[test]
    fn a_provider_in_the_file() {
        assert_eq!(read("").unwrap(), None);
        let file = "[sso]\nissuer = \"https://login.x.org\"\nclient_id = \"shoal\"\nclient_secret_file = \"oidc\"\n\
                    claim = \"groups\"\n[sso.keys]\nml = \"anna\"\nadmins = \"owner\"";
        let options = read(file).unwrap().unwrap();
        assert_eq!(options.client_secret_file.as_deref(), Some(Path::new("/data/oidc")));
        assert_eq!((&*options.keys["ml"], &*options.keys["admins"], &*options.claim), ("anna", "owner", "groups"));
        assert_eq!((&*options.scopes, options.url), ("openid email profile", None));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let whole = "issuer = \"https://x.org\"\nclient_id = \"s\"\nkeys = { a = \"b\" }\n";
        assert!(read(&format!("[sso]\n{whole}")).is_ok());
        for (file, name) in [
            (whole.replace("https", "http"), "sso_issuer"),
            (whole.replace("client_id = \"s\"", ""), "sso_client_id"),
            (whole.replace("a = \"b\"", ""), "sso_keys"),
            (whole.replace("\"b\"", "\"\""), "sso_keys"),
            (format!("scopes = \"email\"\n{whole}"), "sso_scopes"),
            (format!("url = \"shoal.x.org\"\n{whole}"), "sso_url"),
            ("client_id = \"s\"".to_owned(), "of use without sso_issuer"),
        ] {
            let message = read(&format!("[sso]\n{file}")).unwrap_err().to_string();
            assert!(message.contains(name), "{file}: {message}");
        }
    }
}
