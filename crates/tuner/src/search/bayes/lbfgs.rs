//! Limited-memory BFGS within bounds, one evaluation at a time, so that several searches can be
//! evaluated together. Directions are those of Nocedal and Wright, "Numerical Optimization" (2006),
//! algorithm 7.4, over the coordinates that are free; steps are projected onto the bounds and
//! backtracked.

use std::collections::VecDeque;

/// When it ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Evaluations at most.
    pub(super) evaluations: usize,
    /// The greatest part of the projected gradient is below this.
    pub(super) gradient: f64,
    /// A step gains less than this.
    pub(super) gain: f64,
}

/// A search for a minimum.
#[derive(Debug, Clone)]
pub(super) struct Search {
    limits: Limits,
    bounds: Vec<(f64, f64)>,
    /// Best so far.
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    /// Steps and changes of the gradient, newest last.
    memory: VecDeque<(Vec<f64>, Vec<f64>, f64)>,
    direction: Vec<f64>,
    step: f64,
    trial: Vec<f64>,
    evaluations: usize,
    is_over: bool,
}

/// Pairs that are remembered.
const MEMORY: usize = 10;
/// Of the gain that the slope promises (Armijo).
const ENOUGH: f64 = 1e-4;

impl Search {
    /// From a point, which is moved into the bounds.
    pub(super) fn new(start: &[f64], bounds: Vec<(f64, f64)>, limits: Limits) -> Self {
        let trial: Vec<f64> = start.iter().zip(&bounds).map(|(x, (low, high))| x.clamp(*low, *high)).collect();
        Self {
            limits,
            bounds,
            point: trial.clone(),
            value: f64::INFINITY,
            gradient: Vec::new(),
            memory: VecDeque::new(),
            direction: Vec::new(),
            step: 1.0,
            trial,
            evaluations: 0,
            is_over: false,
        }
    }

    /// Where to evaluate next; none when it is over.
    pub(super) fn next(&self) -> Option<&[f64]> {
        (!self.is_over).then_some(self.trial.as_slice())
    }

    /// The best point and its value.
    pub(super) fn best(&self) -> (&[f64], f64) {
        (&self.point, self.value)
    }

    /// Value and gradient at [`Self::next`].
    pub(super) fn tell(&mut self, value: f64, gradient: &[f64]) {
        self.evaluations += 1;
        let is_sound = value.is_finite() && gradient.iter().all(|part| part.is_finite());
        if self.evaluations == 1 {
            self.value = value;
            self.gradient = gradient.to_vec();
            self.is_over = !is_sound;
            self.advance();
            return;
        }
        let moved: Vec<f64> = self.trial.iter().zip(&self.point).map(|(new, old)| new - old).collect();
        let promised: f64 = dot(&self.gradient, &moved);
        if is_sound && value <= self.value + ENOUGH * promised {
            let change: Vec<f64> = gradient.iter().zip(&self.gradient).map(|(new, old)| new - old).collect();
            let curvature = dot(&moved, &change);
            if curvature > 1e-10 * dot(&change, &change).max(f64::MIN_POSITIVE) {
                if self.memory.len() == MEMORY {
                    self.memory.pop_front();
                }
                self.memory.push_back((moved, change, 1.0 / curvature));
            }
            let gain = self.value - value;
            self.point.clone_from(&self.trial);
            self.value = value;
            self.gradient = gradient.to_vec();
            self.is_over = gain < self.limits.gain;
            self.advance();
        } else {
            // A parabola through what is known, kept between a tenth and a half.
            let bend = value - self.value - promised;
            let factor = if is_sound && bend > 0.0 { (-0.5 * promised / bend).clamp(0.1, 0.5) } else { 0.1 };
            self.step *= factor;
            self.is_over = self.step < 1e-10 || self.evaluations >= self.limits.evaluations;
            self.place();
        }
    }

    fn is_free(&self, index: usize) -> bool {
        let (low, high) = self.bounds[index];
        let (x, slope) = (self.point[index], self.gradient[index]);
        !(x <= low && slope >= 0.0 || x >= high && slope <= 0.0)
    }

    /// A new direction.
    fn advance(&mut self) {
        let free: Vec<bool> = (0..self.point.len()).map(|index| self.is_free(index)).collect();
        let steepest = self
            .gradient
            .iter()
            .zip(&free)
            .filter(|(_, free)| **free)
            .fold(0.0_f64, |most, (part, _)| most.max(part.abs()));
        if steepest < self.limits.gradient || self.evaluations >= self.limits.evaluations {
            self.is_over = true;
        }
        if self.is_over {
            return;
        }
        let masked = |vector: &[f64]| -> Vec<f64> {
            vector.iter().zip(&free).map(|(part, free)| if *free { *part } else { 0.0 }).collect()
        };
        let mut q = masked(&self.gradient);
        let mut weights = Vec::with_capacity(self.memory.len());
        for (step, change, rho) in self.memory.iter().rev() {
            let weight = rho * dot(step, &q);
            weights.push(weight);
            q.iter_mut().zip(change).for_each(|(q, change)| *q -= weight * change);
        }
        match self.memory.back() {
            Some((_, change, rho)) => {
                let scale = 1.0 / (rho * dot(change, change));
                q.iter_mut().for_each(|q| *q *= scale);
            }
            // A first step of length one tenth.
            None => q.iter_mut().for_each(|q| *q *= 0.1 / steepest.max(0.1)),
        }
        for ((step, change, rho), weight) in self.memory.iter().zip(weights.iter().rev()) {
            let back = rho * dot(change, &q);
            q.iter_mut().zip(step).for_each(|(q, step)| *q += (weight - back) * step);
        }
        let direction = masked(&q);
        if dot(&direction, &self.gradient) > 0.0 {
            self.direction = direction.iter().map(|part| -part).collect();
        } else {
            self.memory.clear();
            self.direction = masked(&self.gradient).iter().map(|part| -part * (0.1 / steepest.max(0.1))).collect();
        }
        self.step = 1.0;
        self.place();
    }

    fn place(&mut self) {
        for (((trial, x), part), (low, high)) in
            self.trial.iter_mut().zip(&self.point).zip(&self.direction).zip(&self.bounds)
        {
            *trial = (x + self.step * part).clamp(*low, *high);
        }
        self.is_over |= self.trial == self.point;
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rosenbrock(x: &[f64]) -> (f64, [f64; 2]) {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        (a * a + 100.0 * b * b, [-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
    }

    #[test]
    fn it_finds_minima_inside_and_at_bounds() {
        for (bounds, expected) in [((-2.0, 2.0), [1.0, 1.0]), ((-2.0, 0.5), [0.5, 0.25])] {
            let mut search =
                Search::new(&[-1.2, 0.4], vec![bounds, bounds], Limits { evaluations: 300, gradient: 1e-9, gain: 0.0 });
            while let Some(point) = search.next() {
                let (value, gradient) = rosenbrock(point);
                search.tell(value, &gradient);
            }
            let (point, _) = search.best();
            assert!(point.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-5), "{point:?}");
        }
    }
}
