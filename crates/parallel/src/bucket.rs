//! Gradients that are sent together: small tensors are fused into buckets in the reverse order of
//! their use, which is the order in which a backward pass finishes them (Li et al., "PyTorch
//! Distributed", VLDB 2020, section 3.2; Horovod's tensor fusion).
//!
//! Ranks agree on the buckets without talking, since these follow from the tensors alone; and on
//! the order in which they are sent, since a bucket waits for those before it ([`Launches`]).

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one, nearest_multiples};

/// A gradient, in the order in which the forward pass uses its parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gradient {
    /// Its size.
    pub bytes: u64,
    /// Only gradients of one kind share a bucket: a number for their type and device.
    pub kind: u32,
}

/// How large buckets become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketOptions {
    /// A bucket ends before it would become larger than this; a gradient that is larger by itself
    /// has one of its own. Bytes.
    pub cap: u64,
    /// The same of the first bucket of each kind: a small one is sent soon, while there is still
    /// much to hide it behind. Bytes.
    pub first_cap: u64,
    /// Offsets in a bucket are multiples of this. Bytes.
    pub align: u64,
}

impl Default for BucketOptions {
    /// PyTorch's: 25 MiB, the first 1 MiB; at the width of a cache line.
    fn default() -> Self {
        Self { cap: 25 << 20, first_cap: 1 << 20, align: 64 }
    }
}

/// Gradients in one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Which gradients, and where each begins, in bytes.
    pub members: Vec<(usize, u64)>,
    /// Size of the whole.
    pub bytes: u64,
    /// What kind all are of.
    pub kind: u32,
}

/// The buckets of a model, in the order in which they are sent: by the last of their members to be
/// finished.
///
/// # Errors
/// An alignment of 0, or a size that is no multiple of it.
pub fn buckets(gradients: &[Gradient], options: BucketOptions) -> Result<Vec<Bucket>, Invalid> {
    let align = options.align;
    at_least_one("align", usize::try_from(align).unwrap_or(usize::MAX))?;
    for (field, cap) in [("cap", options.cap), ("first_cap", options.first_cap)] {
        if cap == 0 || !cap.is_multiple_of(align) {
            let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let problem = format!("{cap} bytes are not a multiple of the alignment, {align}");
            return Err(Invalid::new(field, problem).nearest(nearest_multiples(size(align), size(cap))));
        }
    }
    let mut closed = Vec::new();
    // At most one of each kind; kinds are few.
    let mut open: Vec<Bucket> = Vec::new();
    let mut begun: Vec<u32> = Vec::new();
    for (index, gradient) in gradients.iter().enumerate().rev() {
        let room = gradient.bytes.next_multiple_of(align);
        let cap = if begun.contains(&gradient.kind) { options.cap } else { options.first_cap };
        if let Some(at) = open.iter().position(|bucket| bucket.kind == gradient.kind) {
            let bucket = &mut open[at];
            if bucket.bytes + room <= cap {
                bucket.members.push((index, bucket.bytes));
                bucket.bytes += room;
                continue;
            }
            closed.push(open.remove(at));
            begun.push(gradient.kind);
        }
        open.push(Bucket { members: vec![(index, 0)], bytes: room, kind: gradient.kind });
    }
    closed.extend(open);
    // The last to be finished is the first to have been used.
    closed.sort_by_key(|bucket| std::cmp::Reverse(bucket.members.last().map_or(0, |(index, _)| *index)));
    Ok(closed)
}

/// Which buckets may be sent, as gradients become ready in any order: always in the order of the
/// buckets, on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launches {
    /// Of each gradient, its bucket.
    bucket: Vec<usize>,
    ready: Vec<bool>,
    /// Of each bucket, gradients that are not ready.
    missing: Vec<usize>,
    next: usize,
}

impl Launches {
    /// For one backward pass over these buckets.
    pub fn new(buckets: &[Bucket]) -> Self {
        let count = buckets.iter().map(|bucket| bucket.members.len()).sum();
        let mut bucket_of = vec![0; count];
        for (number, bucket) in buckets.iter().enumerate() {
            for (index, _) in &bucket.members {
                bucket_of[*index] = number;
            }
        }
        Self {
            bucket: bucket_of,
            ready: vec![false; count],
            missing: buckets.iter().map(|bucket| bucket.members.len()).collect(),
            next: 0,
        }
    }

    /// A gradient is ready; returns the buckets to send now.
    ///
    /// # Errors
    /// There is no such gradient, or it was ready before: its parameter was used twice, or a pass
    /// went on without the step.
    pub fn ready(&mut self, gradient: usize) -> Result<std::ops::Range<usize>, Invalid> {
        match self.ready.get_mut(gradient) {
            None => return Err(Invalid::new("gradient", format!("{gradient} of {}", self.bucket.len()))),
            Some(true) => return Err(Invalid::new("gradient", format!("{gradient} was ready before in this pass"))),
            Some(ready) => *ready = true,
        }
        self.missing[self.bucket[gradient]] -= 1;
        let first = self.next;
        while self.missing.get(self.next) == Some(&0) {
            self.next += 1;
        }
        Ok(first..self.next)
    }

    /// Gradients that the pass has not finished, for instance of parameters that it did not use; in
    /// the order of use.
    pub fn unready(&self) -> Vec<usize> {
        (0..self.ready.len()).filter(|index| !self.ready[*index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    fn gradients(sizes: &[u64]) -> Vec<Gradient> {
        sizes.iter().map(|&bytes| Gradient { bytes, kind: 0 }).collect()
    }

    fn members(buckets: &[Bucket]) -> Vec<Vec<usize>> {
        buckets.iter().map(|bucket| bucket.members.iter().map(|(index, _)| *index).collect()).collect()
    }

    #[test]
    fn buckets_fill_from_the_end() {
        let options = BucketOptions { cap: 100, first_cap: 20, align: 10 };
        let found = buckets(&gradients(&[50, 60, 41, 200, 10, 5]), options).unwrap();
        assert_eq!(members(&found), [vec![5, 4], vec![3], vec![2], vec![1], vec![0]]);
        let found = buckets(&gradients(&[50, 60, 30, 200, 10, 15]), options).unwrap();
        assert_eq!(members(&found), [vec![5], vec![4], vec![3], vec![2, 1], vec![0]]);
        assert_eq!(found[3].members, [(2, 0), (1, 30)]);
        assert_eq!(found[3].bytes, 90);
        // Two kinds fill side by side, and go in the order in which they are finished.
        let mixed: Vec<_> = [0, 1, 0, 1].into_iter().map(|kind| Gradient { bytes: 10, kind }).collect();
        assert_eq!(members(&buckets(&mixed, options).unwrap()), [vec![3, 1], vec![2, 0]]);
    }

    #[test]
    fn every_gradient_is_sent_once_and_in_the_same_order_everywhere() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            let sizes: Vec<_> = (0..rng.from(0, 60))
                .map(|_| Gradient { bytes: rng.from(0, 500) as u64, kind: rng.from(0, 2) as u32 })
                .collect();
            let align = rng.pick(&[1, 16, 64]);
            let options = BucketOptions { cap: 640, first_cap: 128, align };
            let found = buckets(&sizes, options).unwrap();
            let mut all: Vec<usize> = members(&found).concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..sizes.len()));
            for bucket in &found {
                assert!(bucket.bytes <= options.cap || bucket.members.len() == 1);
                let mut end = 0;
                for &(index, offset) in &bucket.members {
                    assert!(offset >= end && offset.is_multiple_of(align) && sizes[index].kind == bucket.kind);
                    end = offset + sizes[index].bytes;
                }
                assert!(end <= bucket.bytes && bucket.members.is_sorted_by(|one, next| one.0 > next.0));
            }
            // Gradients come in an order of their own on each rank; buckets are sent from the first
            // to the last, each when all of it is there.
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            rng.shuffle(&mut order);
            let mut launches = Launches::new(&found);
            let mut sent = 0;
            for (count, &gradient) in order.iter().enumerate() {
                let now = launches.ready(gradient).unwrap();
                assert_eq!(now.start, sent);
                for bucket in now {
                    assert!(found[bucket].members.iter().all(|(member, _)| order[..=count].contains(member)));
                    sent += 1;
                }
                assert!(launches.ready(gradient).is_err());
            }
            assert_eq!((sent, launches.unready()), (found.len(), vec![]));
        }
    }

    /// In the order of a backward pass no bucket waits for another one.
    #[test]
    fn a_backward_pass_sends_each_bucket_with_its_last_gradient() {
        let found = buckets(&gradients(&[40; 12]), BucketOptions { cap: 120, first_cap: 40, align: 8 }).unwrap();
        assert_eq!(members(&found), [vec![11], vec![10, 9, 8], vec![7, 6, 5], vec![4, 3, 2], vec![1, 0]]);
        let mut launches = Launches::new(&found);
        let sent: Vec<usize> = (0..12).rev().map(|gradient| launches.ready(gradient).unwrap().len()).collect();
        assert_eq!(sent, [1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn sizes_that_do_not_align_are_refused() {
        let error = buckets(&[], BucketOptions { cap: 1000, ..BucketOptions::default() }).unwrap_err();
        assert_eq!((error.field, error.nearest.as_slice()), ("cap", [960, 1024].as_slice()));
        assert_eq!(Launches::new(&[]).ready(0).unwrap_err().field, "gradient");
    }
}
