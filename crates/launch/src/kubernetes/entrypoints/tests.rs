use std::cell::Cell;

use super::*;

fn entrypoints() -> Entrypoints {
    Entrypoints::new(&KubernetesOptions::default())
}

fn asked(image: &str) -> Asked {
    (image.to_owned(), "amd64".to_owned(), Vec::new())
}

#[tokio::test]
async fn answers_are_kept_as_long_as_they_hold() {
    let (all, begun, count) = (entrypoints(), Instant::now(), Cell::new(0));
    let of = |image: &'static str, second: u64, fresh: Duration| {
        let (all, count) = (&all, &count);
        let ask = async move {
            count.set(count.get() + 1);
            (fresh, Found::Entrypoint(vec![count.get().to_string()]))
        };
        async move {
            match all.known(asked(image), || begun + Duration::from_secs(second), ask).await {
                Found::Entrypoint(words) => words.concat(),
                Found::Unknown(why) => why,
            }
        }
    };
    assert_eq!(of("a", 0, FRESH).await, "1");
    assert_eq!(of("a", 59, FRESH).await, "1");
    assert_eq!(of("b", 59, FAILED).await, "2", "another image");
    assert_eq!(of("a", 61, FIXED).await, "3");
    assert_eq!(of("b", 70, FRESH).await, "4", "what failed is tried again sooner");
    assert_eq!(of("a", 61 + 3600, FRESH).await, "3", "a digest's image is the same for ever");
}

#[tokio::test]
async fn one_asks_for_all_and_what_is_old_goes() {
    let (all, begun) = (Arc::new(entrypoints()), Instant::now());
    let ask = |number: u32| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        (FRESH, Found::Unknown(number.to_string()))
    };
    let at_once = futures::future::join_all((0..9).map(|it| all.known(asked("a"), || begun, ask(it)))).await;
    assert_eq!(at_once, vec![Found::Unknown("0".to_owned()); 9]);
    for number in 0..2 * MANY {
        let now = || begun + Duration::from_secs(number as u64);
        all.known(asked(&number.to_string()), now, async { (FAILED, Found::Unknown(String::new())) }).await;
    }
    assert!(all.known.lock().expect("no panic").len() < 2 * MANY);
}

#[tokio::test]
async fn a_registry_that_is_not_there_costs_no_job() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let session = Session::default();
    let all = entrypoints();
    let Found::Unknown(why) = all.of(&session, &format!("{address}/a:1"), &PodOptions::default(), Instant::now).await
    else {
        panic!("nothing listens there")
    };
    assert!(why.contains(&format!("{address} cannot be reached")) && why.contains("ContainerEntrypoint"), "{why}");
    assert!(why.contains("insecure_registries"), "{why}");
    let Found::Unknown(why) = all.of(&session, "a b", &PodOptions::default(), Instant::now).await else {
        panic!("it has no name")
    };
    assert!(why.contains("no image's name"), "{why}");
}

#[test]
fn the_nodes_architecture_counts() {
    let selector = BTreeMap::from([(ARCHITECTURE.to_owned(), "s390x".to_owned())]);
    assert_eq!(architecture(&PodOptions { node_selector: selector, ..PodOptions::default() }), "s390x");
    assert!(["amd64", "arm64"].contains(&&*architecture(&PodOptions::default())) || ARCH == "riscv64");
    let words = vec!["/bin/sh".to_owned(), "-c".to_owned()];
    assert_eq!(Found::Entrypoint(words).variable().1, r#"["/bin/sh","-c"]"#);
}
