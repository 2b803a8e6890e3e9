//! Names, addresses and the lack of a way out.

use std::io::Write;
use std::net::TcpListener;

use shoal_sandbox::{FORWARDER_PORT, Network, SandboxError};

use crate::Test;
use crate::stage::{Outcome, Stage, ended, first_line};

pub(crate) const TESTS: &[Test] = &[
    ("hosts_have_names_and_addresses", hosts_have_names_and_addresses),
    ("instances_talk_and_share_no_port", instances_talk_and_share_no_port),
    ("networks_are_apart", networks_are_apart),
    ("there_is_no_way_out", there_is_no_way_out),
    ("the_forwarder_is_the_way_out", the_forwarder_is_the_way_out),
    ("a_network_that_is_gone_cannot_be_joined", a_network_that_is_gone_cannot_be_joined),
    ("too_many_hosts_are_refused", too_many_hosts_are_refused),
    ("a_host_can_be_started_again", a_host_can_be_started_again),
];

/// Prints what came of connecting to every given `HOST:PORT`.
const CONNECT: &str = "import socket, sys\n\
    for place in sys.argv[1:]:\n\
    \x20   host, port = place.rsplit(':', 1)\n\
    \x20   try: print(socket.create_connection((host, int(port)), timeout=5).recv(5).decode())\n\
    \x20   except OSError as error: print(error.strerror or error)\n";

fn hosts_have_names_and_addresses(stage: &Stage) -> Outcome {
    let network = stage.shell("").network;
    let addresses = [1, 2].map(|host| network.address(host).to_string());
    assert_eq!(addresses, if stage.is_full() { ["10.77.0.1", "10.77.0.2"] } else { ["127.0.1.1", "127.0.1.2"] });
    stage.needs_namespaces()?;
    let ended = stage.run("hostname; cat /etc/hostname; getent ahostsv4 algo-2 | cut -d ' ' -f 1 | sort -u; getent hosts localhost | cut -d ' ' -f 1; test -e /etc/resolv.conf || echo unresolved");
    assert_eq!(ended.stdout, "algo-1\nalgo-1\n10.77.0.2\n::1\nunresolved\n");
    Ok(())
}

fn instances_talk_and_share_no_port(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    stage.python()?;
    let serve = "import socket\n\
        s = socket.create_server(('0.0.0.0', 29500)); print('ready', flush=True)\n\
        while True: s.accept()[0].sendall(socket.gethostname()[:5].encode() + b'!')\n";
    let mut first = stage.shell("");
    first.spec.command = ["python3", "-c", serve].map(str::to_owned).to_vec();
    let mut server = stage.start(&first).unwrap();
    assert_eq!(first_line(&mut server.stdout().unwrap()), "ready");

    let bind_too = "import socket\ns = socket.create_server(('0.0.0.0', 29500))\n";
    let mut second = stage.shell("");
    second.network = Network::join(&first.network.handle(), &stage.support).unwrap();
    second.spec.host = 2;
    second.spec.hostname = "algo-2".to_owned();
    let code = format!("{bind_too}{CONNECT}");
    second.spec.command = ["python3", "-c", &code, "algo-1:29500", "10.77.0.1:29501"].map(str::to_owned).to_vec();
    let client = stage.finish(&second);
    assert_eq!((&*client.stdout, &*client.stderr), ("algo-\nConnection refused\n", ""));
    server.kill();
    assert_eq!(server.wait().unwrap().signal, Some(9));
    Ok(())
}

fn networks_are_apart(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    stage.python()?;
    let serve = "import socket\ns = socket.create_server(('0.0.0.0', 29500)); print('ready', flush=True); s.accept()";
    let mut first = stage.shell("");
    first.spec.command = ["python3", "-c", serve].map(str::to_owned).to_vec();
    let mut server = stage.start(&first).unwrap();
    assert_eq!(first_line(&mut server.stdout().unwrap()), "ready");
    // The same names and addresses, in another job: nobody answers there.
    let mut second = stage.shell("");
    second.spec.host = 2;
    second.spec.command = ["python3", "-c", CONNECT, "algo-1:29500"].map(str::to_owned).to_vec();
    assert_eq!(stage.finish(&second).stdout, "No route to host\n");
    Ok(())
}

fn there_is_no_way_out(stage: &Stage) -> Outcome {
    stage.needs_namespaces()?;
    stage.python()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut instance = stage.shell("");
    let places = [format!("127.0.0.1:{port}"), "192.0.2.1:80".to_owned(), "10.76.0.1:80".to_owned()];
    instance.spec.command = ["python3", "-c", CONNECT].map(str::to_owned).into_iter().chain(places).collect();
    assert_eq!(stage.finish(&instance).stdout, "Connection refused\nNetwork is unreachable\nNetwork is unreachable\n");
    Ok(())
}

fn the_forwarder_is_the_way_out(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("sleep 0");
    if !stage.is_full() {
        assert!(stage.start(&instance).unwrap().listener().is_none());
        return Ok(());
    }
    stage.python()?;
    instance.spec.command =
        ["python3", "-c", CONNECT, &format!("127.0.0.1:{FORWARDER_PORT}")].map(str::to_owned).to_vec();
    let mut sandbox = stage.start(&instance).unwrap();
    let listener = sandbox.listener().unwrap();
    assert!(sandbox.listener().is_none(), "it is taken once");
    listener.accept().unwrap().0.write_all(b"hello").unwrap();
    assert_eq!(ended(sandbox).stdout, "hello\n");
    Ok(())
}

fn a_network_that_is_gone_cannot_be_joined(stage: &Stage) -> Outcome {
    let instance = stage.shell("exit 0");
    let handle = instance.network.handle();
    assert!(Network::join(&handle, &stage.support).is_ok());
    stage.needs_namespaces()?;
    drop(instance);
    for handle in [&*handle, "", "nonsense", "1:1"] {
        assert!(matches!(Network::join(handle, &stage.support), Err(SandboxError::NetworkGone { .. })), "{handle:?}");
    }
    Ok(())
}

fn too_many_hosts_are_refused(stage: &Stage) -> Outcome {
    for hosts in [0, 5000] {
        assert!(
            matches!(Network::create("test-many", hosts, &stage.support), Err(SandboxError::TooManyHosts { .. })),
            "{hosts}"
        );
    }
    Ok(())
}

fn a_host_can_be_started_again(stage: &Stage) -> Outcome {
    let instance = stage.shell("exit 6");
    for _ in 0..3 {
        assert_eq!(stage.finish(&instance).exit.code, Some(6));
    }
    Ok(())
}
