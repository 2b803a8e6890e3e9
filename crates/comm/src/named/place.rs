//! The ranks' places among the hosts, and the settings that all ranks must share: agreed on in one
//! all-gather.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::settings::Settings;
use crate::{Call, DType, Error, Kind, ProcessGroup, rendezvous};

/// This rank's place among the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number among the ranks of its host, and how many these are.
    pub local: (usize, usize),
    /// Its host's number among those that have a rank with that number, and how many these are.
    pub cross: (usize, usize),
    /// Whether all hosts have the same number of ranks.
    pub homogeneous: bool,
}

/// The settings and places of all ranks: those of rank 0 where they must be the same.
pub(super) fn agree(
    world: &dyn ProcessGroup,
    settings: Settings,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(Settings, Place), Error> {
    const FIELDS: usize = 7;
    let number = |name: &str| match lookup(name).filter(|it| !it.trim().is_empty()) {
        None => Ok(None),
        Some(it) => it
            .trim()
            .parse::<u64>()
            .map(Some)
            .map_err(|_| Error::config(format!("{name} is {it:?}: give a number from 0 up"))),
    };
    let mut hasher = DefaultHasher::new();
    lookup("SHOAL_COMM_HOST").unwrap_or_else(rendezvous::host_identity).hash(&mut hasher);
    let [fusion, cache] = settings.common();
    // Numbers from 1, 0 for none.
    let said = |name: &str| number(name).map(|it| it.map_or(0, |it| it + 1));
    let mine: [u64; FIELDS] = [
        fusion,
        cache,
        hasher.finish(),
        said("LOCAL_RANK")?,
        said("LOCAL_WORLD_SIZE")?,
        said("CROSS_RANK")?,
        said("CROSS_SIZE")?,
    ];
    let mut all = vec![0_u64; FIELDS * world.size()];
    let call = Call::new(Kind::AllGather, DType::I64, mine.as_ptr().cast(), all.as_mut_ptr().cast(), FIELDS);
    #[expect(unsafe_code, reason = "calls are addresses")]
    // SAFETY: both live until this returns and have the lengths of the call.
    unsafe {
        world.run(&call)?;
    }
    let all: Vec<_> = all.chunks(FIELDS).collect();
    let place = place(&all.iter().map(|it| it[2]).collect::<Vec<_>>(), world.rank());
    // A launcher's numbers count only if all ranks have them.
    let told = |field: usize| {
        all.iter()
            .all(|it| it[field] > 0 && it[field + 1] > 0)
            .then(|| (mine[field] as usize - 1, mine[field + 1] as usize - 1))
    };
    let place = Place { local: told(3).unwrap_or(place.local), cross: told(5).unwrap_or(place.cross), ..place };
    Ok((settings.with_common([all[0][0], all[0][1]]), place))
}

/// A rank's place, derived from all ranks' hosts.
fn place(hosts: &[u64], rank: usize) -> Place {
    let of_host = |host: u64| hosts.iter().filter(|it| **it == host).count();
    let local_of = |rank: usize| hosts[..rank].iter().filter(|it| **it == hosts[rank]).count();
    let local = local_of(rank);
    let peers: Vec<_> = (0..hosts.len()).filter(|it| local_of(*it) == local).collect();
    Place {
        local: (local, of_host(hosts[rank])),
        cross: (peers.iter().position(|it| *it == rank).unwrap_or(0), peers.len()),
        homogeneous: hosts.iter().all(|host| of_host(*host) == of_host(hosts[0])),
    }
}
