//! Who lives, over processes and hosts: control connections between all ranks, heartbeats, and what
//! follows from a loss.

mod calls;
mod mesh;
pub(crate) mod message;

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::mesh::{Fate, Mesh};
use self::message::{Message, Waiting};
use crate::guard::{Alarm, Fault, Watch};

/// The watch of one formation of a group.
#[derive(Debug)]
pub(crate) struct Formation {
    mesh: Arc<Mesh>,
    me: usize,
    epoch: u64,
    /// Rank to node.
    nodes: Vec<usize>,
    alarm: Arc<Alarm>,
}

impl Formation {
    /// Hears of losses among these nodes from now on, as ranks of that epoch.
    pub(crate) fn new(mesh: &Arc<Mesh>, me: usize, epoch: u64, nodes: &[usize]) -> Self {
        let alarm = Arc::new(Alarm::default());
        mesh.register(epoch, nodes, &alarm);
        mesh.shared.lock().calls.forget_before(epoch);
        Self { mesh: Arc::clone(mesh), me, epoch, nodes: nodes.to_vec(), alarm }
    }

    fn numbers(members: &[usize]) -> Vec<u32> {
        members.iter().map(|member| u32::try_from(*member).expect("at most 1024 ranks")).collect()
    }

    fn nodes_of(&self, members: &[usize]) -> Vec<usize> {
        members.iter().map(|member| self.nodes[*member]).collect()
    }
}

impl Watch for Formation {
    fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    fn tell(&self, fault: &Fault) {
        self.alarm.raise(fault.clone());
        self.mesh.send(&self.nodes, &Message::Fault { epoch: self.epoch, fault: fault.clone() });
    }

    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>> {
        let (numbers, nodes) = (Self::numbers(members), self.nodes_of(members));
        self.mesh.shared.lock().calls.heard(self.epoch, numbers.clone(), self.me, mine.map(str::to_owned));
        self.mesh.send(
            &nodes,
            &Message::Call { epoch: self.epoch, members: numbers.clone(), text: mine.map(str::to_owned) },
        );
        let end = Instant::now() + patience;
        let shared = &self.mesh.shared;
        let mut state = shared.lock();
        loop {
            let said: Vec<_> = nodes.iter().map(|node| state.calls.said(self.epoch, &numbers, *node)).collect();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || said.iter().all(Option::is_some) {
                return said.into_iter().map(Option::flatten).collect();
            }
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn waits(&self, members: Option<&[usize]>, number: u64, between: Option<(usize, usize)>, signature: u64) -> bool {
        let all: Vec<_> = (0..self.nodes.len()).collect();
        let members = members.unwrap_or(&all);
        let word = |rank: usize| u32::try_from(rank).expect("at most 1024 ranks");
        let between = between.map(|(sender, receiver)| (word(sender), word(receiver)));
        let waiting = Waiting { members: Self::numbers(members), number, between, signature };
        let mut state = self.mesh.shared.lock();
        if !state.calls.has_said(self.epoch, self.me, &waiting) {
            state.calls.waits(self.epoch, self.me, waiting.clone());
            drop(state);
            self.mesh.send(&self.nodes_of(members), &Message::Waits { epoch: self.epoch, waiting: waiting.clone() });
            state = self.mesh.shared.lock();
        }
        state.calls.disagrees(self.epoch, &waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const BEAT: Duration = Duration::from_millis(500);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// `size` fully connected meshes in this process.
    fn meshes(size: usize) -> Vec<Arc<Mesh>> {
        let all: Vec<_> = (0..size).map(|me| Arc::new(Mesh::new(me, size, BEAT).unwrap())).collect();
        for a in 0..size {
            for b in 0..a {
                let (one, two) = pair();
                all[a].attach(b, one, None).unwrap();
                all[b].attach(a, two, None).unwrap();
            }
        }
        all
    }

    fn formations(meshes: &[Arc<Mesh>]) -> Vec<Formation> {
        let nodes: Vec<_> = (0..meshes.len()).collect();
        meshes.iter().enumerate().map(|(me, mesh)| Formation::new(mesh, me, 0, &nodes)).collect()
    }

    fn fault(of: &Formation, end: Duration) -> Option<Fault> {
        let end = Instant::now() + end;
        while of.alarm.fault().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        of.alarm.fault()
    }

    #[test]
    fn a_closed_connection_is_a_death_and_all_hear_of_it() {
        let meshes = meshes(3);
        let formations = formations(&meshes);
        // One connection only: rank 2 has it from rank 0 that rank 1 is lost.
        meshes[0].lose(1, "its data connection was reset");
        for who in [0, 2] {
            let fault = fault(&formations[who], Duration::from_secs(20));
            assert_eq!(
                fault,
                Some(Fault::Died { rank: 1, how: "its data connection was reset".to_owned() }),
                "rank {who}"
            );
        }
        assert!(matches!(
            fault(&formations[1], Duration::from_secs(20)),
            Some(Fault::Died { .. } | Fault::GaveUp { .. })
        ));
    }

    #[test]
    fn silence_is_a_hang_within_the_heartbeat() {
        let one = Arc::new(Mesh::new(0, 2, BEAT).unwrap());
        let formation = Formation::new(&one, 0, 0, &[0, 1]);
        let (ours, theirs) = pair();
        let begun = Instant::now();
        one.attach(1, ours, None).unwrap();
        let fault = fault(&formation, Duration::from_secs(20));
        let Some(Fault::Hung { rank: 1, milliseconds }) = fault else { panic!("{fault:?}") };
        assert!(milliseconds >= 450 && begun.elapsed() >= Duration::from_millis(450), "{milliseconds} ms");
        // It is told so, between the signs of life.
        let mut said = Vec::new();
        std::io::Read::read_to_end(&mut &theirs, &mut said).unwrap();
        assert!(said.ends_with(&Message::Expelled { milliseconds }.encode()), "{said:?}");
    }

    #[test]
    fn who_forms_anew_says_first_who_was_lost() {
        let meshes = meshes(3);
        let formations = formations(&meshes);
        let lost = Fault::Died { rank: 1, how: "it has left the group".to_owned() };
        // Only rank 0 knows.
        formations[0].alarm.raise(lost.clone());
        formations[0].revoke();
        assert_eq!(fault(&formations[2], Duration::from_secs(20)), Some(lost));
    }

    #[test]
    fn a_goodbye_is_no_death() {
        let mut meshes = meshes(3);
        let formations = formations(&meshes);
        drop(formations.into_iter().nth(2));
        let again = Formation::new(&meshes[0], 0, 1, &[0, 1, 2]);
        drop(meshes.pop());
        let end = Instant::now() + Duration::from_secs(20);
        while meshes[0].fate(2) != Fate::Left && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(meshes[0].fate(2), Fate::Left);
        assert!(!again.alarm.is_raised() && again.alarm.has_left(2) && !again.alarm.has_left(1));
    }

    #[test]
    fn faults_and_texts_reach_all_also_before_a_group_is_formed() {
        let meshes = meshes(2);
        let early = Formation::new(&meshes[0], 0, 3, &[0, 1]);
        early.tell(&Fault::GaveUp { rank: 0, why: "enough".to_owned() });
        std::thread::sleep(Duration::from_millis(20));
        let late = Formation::new(&meshes[1], 1, 3, &[0, 1]);
        assert_eq!(fault(&late, Duration::from_secs(20)), Some(Fault::GaveUp { rank: 0, why: "enough".to_owned() }));
        let said = std::thread::scope(|scope| {
            let one = scope.spawn(|| early.calls(&[0, 1], Some("barrier"), Duration::from_secs(20)));
            assert_eq!(late.calls(&[0, 1], None, Duration::from_secs(20)), [Some("barrier".to_owned()), None]);
            one.join().unwrap()
        });
        assert_eq!(said, [Some("barrier".to_owned()), None]);
    }

    #[test]
    fn ranks_that_wait_in_different_calls_find_out() {
        let meshes = meshes(2);
        let formations = formations(&meshes);
        assert!(!formations[0].waits(None, 7, None, 1));
        let end = Instant::now() + Duration::from_secs(20);
        while !formations[1].waits(None, 7, None, 2) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(formations[1].waits(None, 7, None, 2));
        assert!(!formations[1].waits(None, 8, None, 2));
    }
}
