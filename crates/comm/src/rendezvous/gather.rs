//! Waits until every rank has written where it is, and finds out what is wrong if that does not
//! come to be.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::member::Member;
use super::store::Store;
use crate::Error;

/// After how long a rank says for whom it waits, and again.
pub(crate) const STALL: Duration = Duration::from_secs(10);

/// Writes `me` into the store and waits for the others; all, by rank.
pub(crate) fn gather(store: &dyn Store, me: &Member, patience: Duration) -> Result<Vec<Member>, Error> {
    let there = store.put(&key(me.rank), &me.encode())?;
    let there = read(&there, me.rank, store)?;
    if there.incarnation != me.incarnation {
        return Err(Error::rendezvous(format!(
            "two processes say that they are rank {}: {} and {} (met at {}). Give every process its own RANK from 0 to \
             {}, or another \
             meeting place if these are two groups",
            me.rank,
            there.text(),
            me.text(),
            store.place(),
            me.size - 1
        )));
    }
    let end = Instant::now() + patience;
    let mut found = BTreeMap::new();
    let mut said = Instant::now();
    loop {
        for rank in 0..me.size {
            if found.contains_key(&rank) {
                continue;
            }
            let now = Instant::now();
            // The first that is missing is waited for, in short steps; the others are only looked
            // for.
            let waits_already = (0..rank).any(|before| !found.contains_key(&before));
            let step = if waits_already {
                Duration::ZERO
            } else {
                Duration::from_millis(200).min(end.saturating_duration_since(now))
            };
            if let Some(bytes) = store.wait(&key(rank), step)? {
                let member = read(&bytes, rank, store)?;
                agree(me, &member)?;
                found.insert(rank, member);
            }
        }
        if found.len() == me.size as usize {
            return Ok(found.into_values().collect());
        }
        let missing: Vec<_> =
            (0..me.size).filter(|rank| !found.contains_key(rank)).map(|rank| rank.to_string()).collect();
        if Instant::now() >= end {
            return Err(Error::rendezvous(format!(
                "rank {} timed out after {:.0} s at {}: these ranks have not come: {}. Are their processes running, \
                 with WORLD_SIZE {} and the same \
                 meeting place?",
                me.rank,
                patience.as_secs_f64(),
                store.place(),
                missing.join(", "),
                me.size
            )));
        }
        if said.elapsed() >= STALL {
            said = Instant::now();
            eprintln!("shoal-comm: rank {} waits at {} for ranks {}", me.rank, store.place(), missing.join(", "));
        }
    }
}

fn key(rank: u32) -> String {
    format!("rank/{rank}")
}

fn read(bytes: &[u8], rank: u32, store: &dyn Store) -> Result<Member, Error> {
    Member::decode(bytes).filter(|member| member.rank == rank).ok_or_else(|| {
        Error::rendezvous(format!(
            "what stands at {} for rank {rank} was not written by this version of the library: use a new meeting \
             place, and the same version \
             of Shoal on all hosts",
            store.place()
        ))
    })
}

fn agree(me: &Member, other: &Member) -> Result<(), Error> {
    if other.size != me.size {
        return Err(Error::rendezvous(format!(
            "rank {} says that there are {} ranks, rank {} says {}: set the same WORLD_SIZE everywhere",
            me.rank, me.size, other.rank, other.size
        )));
    }
    if other.heartbeat != me.heartbeat {
        return Err(Error::rendezvous(format!(
            "rank {} has a heartbeat of {} ms, rank {} one of {} ms: set the same SHOAL_COMM_HEARTBEAT everywhere",
            me.rank, me.heartbeat, other.rank, other.heartbeat
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::store::LocalStore;
    use super::*;

    fn member(rank: u32, size: u32) -> Member {
        Member {
            rank,
            size,
            incarnation: u64::from(rank) + 100,
            address: "127.0.0.1:1".parse().unwrap(),
            host: "h".into(),
            pid: 1,
            pid_namespace: 1,
            heartbeat: 500,
        }
    }

    #[test]
    fn all_see_all() {
        let store = LocalStore::default();
        std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..5)
                .map(|rank| {
                    scope.spawn({
                        let store = store.clone();
                        move || gather(&store, &member(rank, 5), Duration::from_secs(60))
                    })
                })
                .collect();
            for rank in ranks {
                let all = rank.join().unwrap().unwrap();
                assert_eq!(all.iter().map(|member| member.rank).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
            }
        });
    }

    #[test]
    fn what_is_wrong_is_said() {
        let store = LocalStore::default();
        let error = gather(&store, &member(1, 4), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("have not come: 0, 2, 3"), "{error}");
        let again = Member { incarnation: 7, ..member(1, 4) };
        let error = gather(&store, &again, Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("two processes say that they are rank 1"), "{error}");
        store.put("rank/2", b"junk").unwrap();
        let error = gather(&store, &member(0, 4), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("rank 2 was not written"), "{error}");
        let store = LocalStore::default();
        store.put("rank/0", &member(0, 4).encode()).unwrap();
        let error = gather(&store, &member(1, 2), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("same WORLD_SIZE"), "{error}");
        let store = LocalStore::default();
        store.put("rank/2", &Member { heartbeat: 9, ..member(2, 4) }.encode()).unwrap();
        let error = gather(&store, &member(3, 4), Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("same SHOAL_COMM_HEARTBEAT"), "{error}");
    }
}
