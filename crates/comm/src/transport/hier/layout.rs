//! Which rank is on which host.

/// Which rank is on which host. Hosts are numbered in the order of their lowest ranks; a rank's
/// place counts the ranks of its host before it.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// By host: its ranks in order.
    hosts: Vec<Vec<usize>>,
    /// By rank: host and place.
    seats: Vec<(usize, usize)>,
}

impl Layout {
    /// From what tells hosts apart, by rank.
    pub(crate) fn new<T: PartialEq>(names: &[T]) -> Self {
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        let mut seats = Vec::with_capacity(names.len());
        for (rank, name) in names.iter().enumerate() {
            let host = hosts.iter().position(|ranks| names[ranks[0]] == *name).unwrap_or_else(|| {
                hosts.push(Vec::new());
                hosts.len() - 1
            });
            seats.push((host, hosts[host].len()));
            hosts[host].push(rank);
        }
        Self { hosts, seats }
    }

    /// How many hosts.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The ranks of a host, in order.
    pub(crate) fn on(&self, host: usize) -> &[usize] {
        &self.hosts[host]
    }

    /// Host and place of a rank.
    pub(crate) fn seat(&self, rank: usize) -> (usize, usize) {
        self.seats[rank]
    }

    /// Places that every host has.
    pub(super) fn rails(&self) -> usize {
        self.hosts.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Places that any host has.
    pub(super) fn places(&self) -> usize {
        self.hosts.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Whether all hosts have equally many ranks.
    pub(super) fn is_even(&self) -> bool {
        self.rails() == self.places()
    }

    /// Whether the ranks of host 0 come first, then those of host 1, and so on.
    pub(super) fn is_in_order(&self) -> bool {
        self.seats.is_sorted()
    }

    /// Who stands on each host for the ranks at that place: the one there, or the last one where
    /// there is none.
    pub(super) fn row(&self, place: usize) -> Vec<usize> {
        self.hosts.iter().map(|ranks| ranks[place.min(ranks.len() - 1)]).collect()
    }

    /// The place of who stands for `place` on a host.
    pub(super) fn stand_in(&self, host: usize, place: usize) -> usize {
        place.min(self.hosts[host].len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_seats() {
        let layout = Layout::new(&["a", "b", "a", "a"]);
        assert_eq!((layout.hosts(), layout.on(0), layout.on(1)), (2, &[0, 2, 3][..], &[1][..]));
        assert_eq!((layout.seat(3), layout.seat(1)), ((0, 2), (1, 0)));
        assert_eq!((layout.rails(), layout.places(), layout.is_even(), layout.is_in_order()), (1, 3, false, false));
        assert_eq!((layout.row(0), layout.row(2)), (vec![0, 1], vec![3, 1]));
        assert_eq!((layout.stand_in(1, 2), layout.stand_in(0, 2)), (0, 2));
        let even = Layout::new(&[7, 7, 9, 9]);
        assert_eq!((even.rails(), even.is_even(), even.is_in_order()), (2, true, true));
        assert!(!Layout::new(&[1, 2, 1, 2]).is_in_order());
    }
}
