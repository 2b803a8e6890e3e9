use super::*;

fn policy(mode: NetworkMode, allow: &[&str]) -> EgressPolicy {
    let allow = allow.iter().map(|entry| (*entry).to_owned()).collect();
    EgressPolicy::new(&Egress { mode, allow }, Some(9777)).unwrap()
}

/// As the agent asks: the name first, then the address that it has.
fn check(policy: &EgressPolicy, host: &str, port: u16, address: &str) -> Result<(), Denied> {
    let destination = Destination::new(host, port).unwrap();
    policy.check_name(&destination)?;
    let address = address.parse().unwrap();
    policy.check_address(&destination, address, address == IpAddr::from([192, 168, 7, 7]))
}

#[test]
fn a_list_opens_what_it_names() {
    let policy = policy(
        NetworkMode::AllowList,
        &[
            "pypi.org",
            "*.hf.co",
            "index.corp:8443",
            "10.1.0.0/16:*",
            "192.0.2.1:22",
            "127.0.0.1:3141",
            "[fd00::1]:443",
            "169.254.0.0/16",
            "0.0.0.0/0:5",
        ],
    );
    use Denied::{Machine, NotListed, Private, Server};
    for (host, port, address, expected) in [
        ("pypi.org", 443, "151.101.0.223", Ok(())),
        ("PyPI.org.", 80, "151.101.0.223", Ok(())),
        ("pypi.org", 22, "151.101.0.223", Err(NotListed)),
        ("a.pypi.org", 443, "151.101.0.223", Err(NotListed)),
        ("notpypi.org", 443, "151.101.0.223", Err(NotListed)),
        ("cdn.hf.co", 443, "8.8.8.8", Ok(())),
        ("a.b.hf.co", 443, "8.8.8.8", Ok(())),
        ("hf.co", 443, "8.8.8.8", Err(NotListed)),
        ("nothf.co", 443, "8.8.8.8", Err(NotListed)),
        // A name that somebody else gives is no key to the company's network, nor is any name one
        // to the machine.
        ("evil.hf.co", 443, "10.2.0.1", Err(Private)),
        ("evil.hf.co", 443, "10.1.0.1", Ok(())),
        ("evil.hf.co", 443, "::ffff:10.2.0.1", Err(Private)),
        ("evil.hf.co", 443, "64:ff9b::a02:1", Err(Private)),
        ("evil.hf.co", 443, "fd12::1", Err(Private)),
        ("evil.hf.co", 443, "169.254.169.254", Err(Machine)),
        ("pypi.org", 443, "127.0.0.1", Err(Machine)),
        ("pypi.org", 443, "::1", Err(Machine)),
        ("pypi.org", 443, "::127.0.0.1", Err(Machine)),
        ("pypi.org", 443, "0.0.0.0", Err(Machine)),
        ("pypi.org", 443, "192.168.7.7", Err(Machine)),
        ("pypi.org", 443, "fd00:ec2::254", Err(Machine)),
        ("index.corp", 8443, "10.9.9.9", Ok(())),
        ("index.corp", 443, "10.9.9.9", Err(NotListed)),
        ("10.1.2.3", 5432, "10.1.2.3", Ok(())),
        ("10.2.2.3", 5432, "10.2.2.3", Err(NotListed)),
        ("8.8.8.8", 443, "8.8.8.8", Err(NotListed)),
        ("192.0.2.1", 22, "192.0.2.1", Ok(())),
        ("192.0.2.1", 443, "192.0.2.1", Err(NotListed)),
        ("[fd00::1]", 443, "fd00::1", Ok(())),
        ("127.0.0.1", 3141, "127.0.0.1", Ok(())),
        ("127.0.0.1", 443, "127.0.0.1", Err(Machine)),
        ("127.0.0.1", 9777, "127.0.0.1", Err(Server)),
        ("169.254.169.254", 80, "169.254.169.254", Err(Machine)),
    ] {
        assert_eq!(check(&policy, host, port, address), expected, "{host}:{port} at {address}");
    }
}

#[test]
fn an_open_network_is_not_the_machine_itself() {
    let policy = policy(NetworkMode::Host, &["169.254.169.254:80"]);
    for (host, port, address, expected) in [
        ("anything.example", 22, "8.8.8.8", Ok(())),
        ("nas.lan", 445, "192.168.1.2", Ok(())),
        ("localhost", 5432, "127.0.0.1", Err(Denied::Machine)),
        ("localhost", 9777, "127.0.0.1", Err(Denied::Server)),
        ("me.example", 9777, "192.168.7.7", Err(Denied::Server)),
        ("me.example", 22, "192.168.7.7", Err(Denied::Machine)),
        ("metadata.google.internal", 80, "169.254.169.254", Ok(())),
        ("metadata.example", 80, "100.100.100.200", Err(Denied::Machine)),
        ("router.example", 80, "169.254.1.1", Err(Denied::Machine)),
    ] {
        assert_eq!(check(&policy, host, port, address), expected, "{host}:{port} at {address}");
    }
}

#[test]
fn entries_that_are_none_say_why() {
    for (entry, expected) in [
        ("", "neither a host name"),
        ("*", "neither a host name"),
        ("https://pypi.org", "its port is not"),
        ("pypi.org/simple", "a network is an address"),
        ("pypi.org:0", "its port is not"),
        ("pypi .org", "neither a host name"),
        ("*.*.org", "neither a host name"),
        ("fd00::1", "in brackets"),
        ("[fd00::1", "closing bracket"),
        ("[fd00::1]x", "only a port"),
        ("10.0.0.0/33", "length of its prefix"),
        ("127.0.0.1", "each with its port"),
        ("127.0.0.0/8:80", "each with its port"),
        ("127.0.0.1:*", "each with its port"),
        ("127.1", "neither a host name"),
    ] {
        let error = entry.parse::<AllowedHost>().unwrap_err().to_string();
        assert!(error.contains(expected), "{entry}: {error}");
    }
}

#[test]
fn destinations_are_names_or_addresses() {
    for (host, expected) in [
        ("Example.COM", Some("example.com:1")),
        ("[::1]", Some("[::1]:1")),
        ("1.2.3.4", Some("1.2.3.4:1")),
        ("0x7f.1", None),
        ("2130706433", None),
        ("a b", None),
        ("", None),
        ("::1", None),
        ("a\r\nb", None),
    ] {
        assert_eq!(Destination::new(host, 1).map(|it| it.to_string()).as_deref(), expected, "{host}");
    }
}

#[test]
fn modes_have_an_order() {
    assert!(NetworkMode::None < NetworkMode::AllowList && NetworkMode::AllowList < NetworkMode::Host);
    assert_eq!("allow-list".parse(), Ok(NetworkMode::AllowList));
    assert_eq!("all".parse::<NetworkMode>(), Err(()));
}
