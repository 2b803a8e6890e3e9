//! The table over random histories.

use super::*;
use crate::named::tests::f32s;

/// A small generator of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

/// Random orders, shapes that differ now and then, joins and small caches: all ranks see the same
/// operations in the same order, each once, and errors where there must be some.
#[test]
fn all_ranks_compute_the_same_list() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let (size, steps, capacity) = (1 + random.below(4), 30, random.below(12));
        let members: Vec<_> = (0..size).collect();
        let mut tables: Vec<_> = (0..size).map(|_| Table::new(&members, capacity)).collect();
        // Each rank submits the same names in an order of its own, each name once at a time.
        let mut queues: Vec<Vec<(usize, bool)>> = vec![Vec::new(); size];
        let mut wrong = vec![false; steps];
        for (name, wrong) in wrong.iter_mut().enumerate() {
            let odd = random.below(10) == 0 && size > 1;
            *wrong = odd;
            let who = random.below(size);
            for (rank, queue) in queues.iter_mut().enumerate() {
                let place = queue.len() - random.below(queue.len().min(4) + 1);
                queue.insert(place, (name, odd && rank == who));
            }
        }
        let mut done = Vec::new();
        let mut ended = 0;
        while ended < steps {
            let mut messages = Vec::new();
            for (rank, queue) in queues.iter_mut().enumerate() {
                let mut out = Vec::new();
                for _ in 0..random.below(4).min(queue.len()) {
                    // Names come back when they are done, and are known then.
                    let Some(place) = queue.iter().position(|(name, _)| *name < 10 || done.contains(&(name - 10)))
                    else {
                        break;
                    };
                    let (name, odd) = queue.remove(place);
                    let request = f32s(Action::AllReduce, &format!("n{}", name % 10), &[name % 10 + usize::from(odd)]);
                    let known = tables[rank].known(rank, &request);
                    let data = vec![1; request.bytes()];
                    Item::write(&request, known, (random.below(2) == 0).then_some(&data), &mut out);
                }
                messages.push(Item::read_all(&out).unwrap());
            }
            let lists: Vec<_> = tables.iter_mut().map(|table| table.cycle(messages.clone()).unwrap()).collect();
            assert!(lists.iter().all(|list| *list == lists[0]), "seed {seed}");
            for ready in &lists[0] {
                let digit: usize = ready.name[1..].parse().unwrap();
                let name = (0..steps).find(|it| it % 10 == digit && !done.contains(it)).unwrap();
                assert_eq!(ready.refused.is_some(), wrong[name], "seed {seed}, name {name}");
                assert!(ready.requests.iter().all(Option::is_some));
                done.push(name);
                ended += 1;
            }
        }
    }
}

#[test]
fn joins_let_others_go_on_and_end_together() {
    let request = |name: &str| Item::New(f32s(Action::AllReduce, name, &[1]), None);
    let join = || Item::New(Request::new(Action::Join, "join"), None);
    let mut table = Table::new(&[0, 1, 2], 8);
    assert!(table.cycle(vec![vec![request("x")], vec![], vec![request("x")]]).unwrap().is_empty());
    let ready = table.cycle(vec![vec![], vec![join()], vec![]]).unwrap();
    assert_eq!(ready.len(), 1);
    assert!(ready[0].requests[1].is_none() && ready[0].refused.is_none());
    assert!(table.cycle(vec![vec![join()], vec![], vec![]]).unwrap().is_empty());
    let ready = table.cycle(vec![vec![], vec![], vec![request("y"), join()]]).unwrap();
    assert_eq!(ready.iter().map(|it| (&*it.name, it.joined)).collect::<Vec<_>>(), [("y", None), ("join", Some(2))]);
    assert!(table.cycle(vec![vec![request("z")], vec![], vec![]]).unwrap().is_empty(), "nobody is joined any more");
    assert_eq!(table.missing("z"), Some((vec![1, 2], 0)));
}

#[test]
fn strange_bytes_are_no_announcement() {
    let mut random = Random(5);
    let mut out = Vec::new();
    let request = Request {
        splits: Some(vec![1, 300]),
        prescale: 0.5,
        signature: "s".to_owned(),
        root: 3,
        ..f32s(Action::AllToAll, "name", &[301, 2])
    };
    Item::write(&request, None, Some(&[1, 2]), &mut out);
    assert_eq!(Item::read_all(&out).unwrap(), [Item::New(request, Some([1, 2].into()))]);
    for _ in 0..2000 {
        let mut strange = out.clone();
        let (at, end) = (random.below(out.len()), random.below(out.len() + 1));
        strange[at] = random.below(256) as u8;
        strange.truncate(end);
        // Read or refused, but no panic; nor a vector as long as a number says.
        drop(Item::read_all(&strange));
    }
}
