use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::random::Random;

fn admitted(all: &Arc<Connections>) -> Arc<Connection> {
    all.try_admit().expect("a place")
}

/// Whether a connection still has its place.
fn is_open(connection: &Connection) -> bool {
    let rank = *connection.rank();
    connection.all.open().ranks.contains(&rank)
}

#[tokio::test]
async fn strangers_make_room_first_then_jobs_then_idle_owners() {
    let all = Connections::new(4);
    let (owner, job, first, second) = (admitted(&all), admitted(&all), admitted(&all), admitted(&all));
    let answering = owner.begin();
    owner.signed(Signer::Owner);
    job.signed(Signer::Job);
    let mut newer = Vec::new();
    for gone in [&first, &second] {
        newer.push(admitted(&all));
        assert!(!is_open(gone), "the oldest stranger's");
        newer.last().unwrap().signed(Signer::Owner);
    }
    let next = admitted(&all);
    assert!(!is_open(&job) && is_open(&owner));
    next.signed(Signer::Owner);
    assert!(all.try_admit().is_none(), "all of them answer the owner");
    drop(answering);
    let last = admitted(&all);
    assert!(!is_open(&owner), "the one that is idle");
    assert!(is_open(&last) && is_open(&next) && newer.iter().all(|it| is_open(it)));
}

#[tokio::test]
async fn a_connection_that_ends_gives_its_place_back() {
    let all = Connections::new(1);
    let only = admitted(&all);
    let answering = only.begin();
    only.signed(Signer::Owner);
    let waiting = tokio::spawn({
        let all = all.clone();
        async move { drop(all.admit().await) }
    });
    tokio::task::yield_now().await;
    drop((answering, only));
    waiting.await.unwrap();
    assert!(all.open().ranks.is_empty() && all.open().tasks.is_empty());
}

#[tokio::test]
async fn who_serves_a_closed_connection_is_ended() {
    let all = Connections::new(1);
    let first = admitted(&all);
    let task = tokio::spawn(std::future::pending::<()>());
    first.is_served_by(task.abort_handle());
    let _second = admitted(&all);
    assert!(task.await.unwrap_err().is_cancelled());
    // One that was closed before its task was known ends, too.
    let late = tokio::spawn(std::future::pending::<()>());
    first.is_served_by(late.abort_handle());
    assert!(late.await.unwrap_err().is_cancelled());
}

#[tokio::test]
async fn a_head_has_a_most_length_and_bodies_do_not_count() {
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let connection = admitted(&Connections::new(1));
    let mut paced = Paced::new(server, connection.clone());
    client.write_all(&vec![b'a'; 3 * MAX_HEAD_BYTES]).await.unwrap();
    let answering = connection.begin();
    let mut buffer = vec![0; MAX_HEAD_BYTES];
    paced.read_exact(&mut buffer).await.unwrap();
    drop(answering);
    paced.read_exact(&mut buffer).await.unwrap();
    let mut more = [0; 1];
    paced.read_exact(&mut more).await.unwrap();
    let error = paced.read_exact(&mut more).await.unwrap_err();
    assert!(error.to_string().contains("head is longer"), "{error}");
}

#[tokio::test]
async fn an_answer_that_nobody_takes_ends() {
    let (client, server) = tokio::io::duplex(16);
    let mut paced =
        Paced { write_timeout: Duration::from_millis(20), ..Paced::new(server, admitted(&Connections::new(1))) };
    let error = paced.write_all(&[0; 1024]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    drop(client);
}

/// What a test knows of a connection.
struct Client {
    connection: Arc<Connection>,
    signer: Signer,
    answering: Option<Answering>,
    /// The owner has signed the request that is being answered.
    is_protected: bool,
}

#[tokio::test]
async fn the_lowest_goes_first_and_no_answer_to_the_owner_is_cut_off() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let places = 1 + random.below(4);
        let all = Connections::new(places);
        // Oldest first; those that were closed for others leave.
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..80 {
            let chosen = random.below(clients.len().max(1));
            match (random.below(6), clients.get_mut(chosen)) {
                (0 | 1, _) | (_, None) => {
                    let protected = clients.iter().filter(|client| client.is_protected).count();
                    let lowest = clients.iter().filter(|client| !client.is_protected).map(|client| client.signer).min();
                    let admitted = all.try_admit();
                    assert_eq!(admitted.is_none(), protected == places, "seed {seed}");
                    let Some(connection) = admitted else { continue };
                    let gone = clients.iter().position(|client| !is_open(&client.connection));
                    assert_eq!(gone.is_some(), clients.len() == places, "seed {seed}");
                    if let Some(gone) = gone {
                        let gone = clients.remove(gone);
                        assert_eq!(Some(gone.signer), lowest, "seed {seed}");
                        assert!(!gone.is_protected, "seed {seed}");
                        // Whatever its task still does has no effect.
                        gone.connection.signed(Signer::Owner);
                    }
                    let signer = connection.rank().signer;
                    clients.push(Client { connection, signer, answering: None, is_protected: false });
                }
                (2, Some(client)) if client.answering.is_none() => {
                    client.answering = Some(client.connection.begin());
                }
                (3, Some(client)) if client.answering.is_some() => {
                    let signer = [Signer::Job, Signer::Owner][random.below(2)];
                    client.connection.signed(signer);
                    client.signer = client.signer.max(signer);
                    client.is_protected = client.signer == Signer::Owner;
                }
                (4, Some(client)) => {
                    client.answering = None;
                    client.is_protected = false;
                }
                (5, Some(_)) if random.one_in(3) => drop(clients.remove(chosen)),
                _ => {}
            }
            assert!(clients.iter().all(|client| is_open(&client.connection)), "seed {seed}");
            assert_eq!(all.open().ranks.len(), clients.len(), "seed {seed}");
        }
    }
}
