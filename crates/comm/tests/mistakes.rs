//! Groups that are configured wrongly: each mistake is named, with what to do; and whoever made
//! none of them forms the group all the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
};

use shoal_comm::{
    Error, ProcessGroupExt, join,
    rendezvous::{Config, LocalStore, Meeting},
};

/// A place on loopback that was free just now.
fn place() -> Meeting {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Meeting::Tcp { host: "127.0.0.1".to_owned(), port }
}

fn refused(config: Config) -> Error {
    join(config).map(drop).unwrap_err()
}

/// Rank 0 waits while another makes a mistake; then the right rank 1 comes.
fn around(zero: Config, one: Config, mistake: impl FnOnce()) {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| join(zero).unwrap().barrier().unwrap());
        mistake();
        join(one).unwrap().barrier().unwrap();
        waiting.join().unwrap();
    });
}

#[test]
fn a_rank_that_cannot_be() {
    let error = refused(Config::new(2, 2, place()));
    assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("ranks go from 0 to 1"), "{error}");
}

#[test]
fn two_ranks_with_one_number() {
    let store = Meeting::Store(Arc::new(LocalStore::default()));
    thread::scope(|scope| {
        let (first, second) = (Config::new(1, 2, store.clone()), Config::new(1, 2, store.clone()));
        let ranks = [scope.spawn(|| join(first)), scope.spawn(|| join(second))];
        // One of them is refused at once, whoever comes second; the other waits for rank 0.
        while !ranks.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::yield_now();
        }
        let zero = join(Config::new(0, 2, store.clone())).unwrap();
        let (formed, errors): (Vec<_>, Vec<_>) =
            ranks.into_iter().map(|rank| rank.join().unwrap()).partition(Result::is_ok);
        assert_eq!((formed.len(), errors.len()), (1, 1));
        let error = errors.into_iter().next().unwrap().map(drop).unwrap_err().to_string();
        assert!(error.contains("two processes say that they are rank 1") && error.contains("its own RANK"), "{error}");
        thread::scope(|scope| {
            scope.spawn(|| zero.barrier().unwrap());
            formed.into_iter().for_each(|one| one.unwrap().barrier().unwrap());
        });
    });
}

#[test]
fn an_address_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let meeting = Meeting::Tcp { host: "127.0.0.1".to_owned(), port: taken.local_addr().unwrap().port() };
    let error = refused(Config::new(0, 2, meeting)).to_string();
    assert!(error.contains("in use") && error.contains("MASTER_PORT") && error.contains("RANK 0"), "{error}");
}

#[test]
fn another_size_of_the_world() {
    let store = Meeting::Store(Arc::new(LocalStore::default()));
    thread::scope(|scope| {
        let ranks = [Config::new(0, 2, store.clone()), Config::new(1, 3, store.clone())]
            .map(|config| scope.spawn(|| refused(config)));
        for rank in ranks {
            let error = rank.join().unwrap().to_string();
            assert!(error.contains("set the same WORLD_SIZE everywhere"), "{error}");
        }
    });
}

#[test]
fn another_secret() {
    let place = place();
    let config = |rank, secret: &str| Config::new(rank, 2, place.clone()).secret(secret);
    around(config(0, "ours"), config(1, "ours"), || {
        for secret in ["theirs", ""] {
            let error = refused(config(1, secret));
            assert!(
                matches!(error, Error::Secret { .. }) && error.to_string().contains("SHOAL_COMM_SECRET"),
                "{error}"
            );
        }
    });
}

#[test]
fn another_version() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let meeting = Meeting::Tcp { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        let challenge = *b"shoalcom\x09\x00________________________________";
        stream.write_all(&challenge).unwrap();
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let error = refused(Config::new(1, 2, meeting));
    assert!(
        matches!(error, Error::Version { theirs: 9, .. }) && error.to_string().contains("same Shoal on all hosts"),
        "{error}"
    );
    other.join().unwrap();
}

#[test]
fn another_user_of_this_machine_where_there_is_no_secret() {
    let place = place();
    let config = |rank| Config::new(rank, 2, place.clone());
    around(config(0), config(1), || {
        let stranger = config(1);
        let told = thread::spawn(move || {
            #[expect(unsafe_code, reason = "the standard library does not change users")]
            // SAFETY: it changes whose files and sockets this thread makes, and those of threads
            // that it starts; nothing else.
            let is_stranger = unsafe {
                libc::setfsuid(65_534);
                libc::setfsuid(65_534) == 65_534
            };
            is_stranger.then(|| refused(stranger))
        });
        let Some(error) = told.join().unwrap() else {
            println!("skipped: needs root, to be another user");
            return;
        };
        assert!(matches!(error, Error::Secret { .. }), "{error}");
        assert!(
            error.to_string().contains("another user of this machine (uid")
                && error.to_string().contains("SHOAL_COMM_SECRET"),
            "{error}"
        );
    });
}
