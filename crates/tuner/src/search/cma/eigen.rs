//! Eigenvectors of small symmetric matrices by Jacobi's rotations: square roots and divisions
//! alone, the same bits everywhere.

/// A symmetric matrix's eigenvalues, and its eigenvectors as columns. `matrix` is row by row, of
/// `size` rows.
pub(super) fn symmetric(matrix: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut a = matrix.to_vec();
    let mut vectors = vec![0.0; size * size];
    (0..size).for_each(|index| vectors[index * size + index] = 1.0);
    for _ in 0..60 {
        let off: f64 = (0..size)
            .flat_map(|row| (row + 1..size).map(move |column| row * size + column))
            .map(|at| a[at] * a[at])
            .sum();
        let diagonal: f64 = (0..size).map(|index| a[index * size + index] * a[index * size + index]).sum();
        if off <= 1e-30 * diagonal {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                let apq = a[p * size + q];
                if apq == 0.0 {
                    continue;
                }
                let theta = (a[q * size + q] - a[p * size + p]) / (2.0 * apq);
                let sign = if theta < 0.0 { -1.0 } else { 1.0 };
                let t = sign / (theta.abs() + libm::sqrt(theta * theta + 1.0));
                let c = 1.0 / libm::sqrt(t * t + 1.0);
                let s = t * c;
                for k in 0..size {
                    let (kp, kq) = (a[k * size + p], a[k * size + q]);
                    a[k * size + p] = c * kp - s * kq;
                    a[k * size + q] = s * kp + c * kq;
                }
                for k in 0..size {
                    let (pk, qk) = (a[p * size + k], a[q * size + k]);
                    a[p * size + k] = c * pk - s * qk;
                    a[q * size + k] = s * pk + c * qk;
                }
                for k in 0..size {
                    let (kp, kq) = (vectors[k * size + p], vectors[k * size + q]);
                    vectors[k * size + p] = c * kp - s * kq;
                    vectors[k * size + q] = s * kp + c * kq;
                }
            }
        }
    }
    ((0..size).map(|index| a[index * size + index]).collect(), vectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn the_matrix_is_put_together_again() {
        let mut rng = Rng::new(1, 1);
        for size in [1, 2, 5, 12] {
            let root: Vec<f64> = (0..size * size).map(|_| rng.normal()).collect();
            let entry = |row: usize, column: usize| {
                (0..size).map(|k| root[row * size + k] * root[column * size + k]).sum::<f64>()
            };
            let matrix: Vec<f64> = (0..size * size).map(|at| entry(at / size, at % size)).collect();
            let (values, vectors) = symmetric(&matrix, size);
            for row in 0..size {
                for column in 0..size {
                    let again: f64 =
                        (0..size).map(|k| vectors[row * size + k] * values[k] * vectors[column * size + k]).sum();
                    assert!((again - matrix[row * size + column]).abs() < 1e-11);
                    let unit: f64 = (0..size).map(|k| vectors[k * size + row] * vectors[k * size + column]).sum();
                    assert!((unit - if row == column { 1.0 } else { 0.0 }).abs() < 1e-12);
                }
            }
        }
    }
}
