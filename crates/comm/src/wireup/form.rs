//! A group of connected processes: its transport, and what watches over it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desk::Reception;
use super::memory::exchange;
use super::reform::Formed;
use crate::Error;
use crate::error::At;
use crate::front::{Options, Parts};
use crate::guard::{Stall, Watch};
use crate::node::Node;
use crate::rendezvous::Carrier;
use crate::transport::hier::{self, Layout};
use crate::transport::{Transport, shm, tcp};
use crate::watch::{Fate, Formation};

/// The group of that epoch, of these nodes (all if not said): connections, transport, and what
/// watches over it.
pub(super) fn form(
    node: &Arc<Node>,
    reception: &Arc<Reception>,
    epoch: u64,
    nodes: Option<&[usize]>,
) -> Result<Parts, Error> {
    let all: Vec<_> = (0..node.config.size).collect();
    let nodes = nodes.unwrap_or(&all);
    let rank = nodes.iter().position(|each| *each == node.me).expect("a rank forms only groups that it is in");
    node.door.forget_before(epoch);
    let watch = Arc::new(Formation::new(&node.mesh, node.me, epoch, nodes));
    let end = Instant::now() + node.config.patience;
    let transport = transport(node, rank, nodes, epoch, &*watch, end)?;
    Ok(Parts {
        rank,
        size: nodes.len(),
        epoch,
        transport,
        watch: Arc::clone(&watch) as Arc<dyn Watch>,
        reform: Arc::new(Formed::new(Arc::clone(node), Arc::clone(reception), epoch, nodes.to_vec(), watch)),
        options: Arc::new(options(node, nodes)),
    })
}

/// Shared memory where all nodes are on one host, TCP where each is on its own, else both.
fn transport(
    node: &Arc<Node>,
    rank: usize,
    nodes: &[usize],
    epoch: u64,
    watch: &dyn Watch,
    end: Instant,
) -> Result<Arc<dyn Transport>, Error> {
    #[cfg(feature = "nccl")]
    if let Carrier::Nccl { device } = node.config.carrier {
        return Ok(Arc::new(crate::transport::nccl::Nccl::connect(node, nodes, epoch, device, watch.alarm(), end)?));
    }
    let hosts: Vec<_> = nodes.iter().map(|each| node.member(*each).host).collect();
    let layout = Layout::new(&hosts);
    if node.config.carrier == Carrier::Tcp || layout.hosts() == nodes.len() {
        return Ok(Arc::new(tcp::Tcp::connect(node, nodes, epoch, watch, end)?));
    }
    let (host, place) = layout.seat(rank);
    let neighbours: Vec<_> = layout.on(host).iter().map(|rank| nodes[*rank]).collect();
    let within: Option<Arc<dyn Transport>> = if neighbours.len() > 1 {
        let segments = exchange(node, &neighbours, epoch, watch, end)?;
        let may_wait = |place: usize| {
            let neighbour = neighbours[place];
            node.check(Some(watch.alarm()), epoch)?;
            node.still_there(neighbour, epoch)?;
            let late = || {
                let what = "did not take part in measuring the memory that ranks of this host share: does it hang, or \
                            is the machine overloaded?";
                Error::rendezvous(format!("rank {neighbour} {what}"))
            };
            if Instant::now() < end { Ok(()) } else { Err(late()) }
        };
        let patience =
            shm::trial::Patience { alarm: watch.alarm(), limit: end.saturating_duration_since(Instant::now()) };
        Some(Arc::new(shm::Shm::new(place, segments, epoch)?.calibrated(node.config.staging, patience, &may_wait)?))
    } else {
        None
    };
    match within {
        Some(within) if layout.hosts() == 1 => Ok(within),
        within => Ok(Arc::new(hier::Hier::connect(node, nodes, epoch, layout, within, watch.alarm(), end)?)),
    }
}

fn options(node: &Node, nodes: &[usize]) -> Options {
    let (me, nodes, mesh, members) = (node.me, nodes.to_vec(), Arc::downgrade(&node.mesh), node.members().clone());
    let tell = move |at: &At, waited: Duration, ranks: &[usize]| {
        let Some(mesh) = mesh.upgrade() else { return };
        let text = |rank: &usize| {
            let node = nodes[*rank];
            let fate = match mesh.fate(node) {
                Fate::Alive => "alive".to_owned(),
                Fate::Left => "has left".to_owned(),
                Fate::Absent => "never connected".to_owned(),
                Fate::Lost { how, .. } => how,
            };
            format!("rank {rank} ({}: {fate})", members[node].text())
        };
        let list: Vec<_> = ranks.iter().map(text).collect();
        eprintln!("shoal-comm: rank {me} has waited {:.0} s in {at} for {}", waited.as_secs_f64(), list.join(", "));
    };
    Options {
        deadline: node.config.deadline,
        stall: Stall { after: node.config.stall, tell: Box::new(tell) },
        keep_input: node.config.keep_input,
    }
}
