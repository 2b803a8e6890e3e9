//! Tall thin matrices, column by column, beside a large one that is a flat slice, row by row.

use super::lanes;

/// A flat slice looked at as a matrix, row by row; the last row may be short, as if zeros followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Shape {
    /// As near to a square as can be: least rows + columns.
    pub(super) fn square(len: usize) -> Self {
        let columns = (len as f64).sqrt().ceil().max(1.0) as usize;
        Self { rows: len.div_ceil(columns), columns }
    }
}

/// `product = matrix * right`: `right` has `rank` columns of the matrix's columns, `product` as
/// many of its rows.
pub(super) fn times(matrix: &[f32], shape: Shape, right: &[f32], product: &mut [f32]) {
    for (row, values) in matrix.chunks(shape.columns).enumerate() {
        for (right, product) in right.chunks(shape.columns).zip(product.chunks_mut(shape.rows)) {
            product[row] = lanes::dot(values, &right[..values.len()]) as f32;
        }
    }
}

/// `product = transposed matrix * left`: `left` has columns of the matrix's rows, `product` as many
/// of its columns.
pub(super) fn transposed_times(matrix: &[f32], shape: Shape, left: &[f32], product: &mut [f32]) {
    product.fill(0.0);
    for (row, values) in matrix.chunks(shape.columns).enumerate() {
        for (left, product) in left.chunks(shape.rows).zip(product.chunks_mut(shape.columns)) {
            lanes::add_scaled(&mut product[..values.len()], left[row], values);
        }
    }
}

/// `matrix += factor * left * transposed right`.
pub(super) fn add_product(matrix: &mut [f32], shape: Shape, factor: f32, left: &[f32], right: &[f32]) {
    for (row, values) in matrix.chunks_mut(shape.columns).enumerate() {
        for (left, right) in left.chunks(shape.rows).zip(right.chunks(shape.columns)) {
            lanes::add_scaled(values, factor * left[row], &right[..values.len()]);
        }
    }
}

/// Makes columns of `rows` elements orthonormal, one after the other (Gram-Schmidt, twice, which is
/// enough in any precision). One that is a combination of those before it becomes zeros.
pub(super) fn orthonormalize(columns: &mut [f32], rows: usize) {
    for i in 0..columns.len() / rows.max(1) {
        let (before, rest) = columns.split_at_mut(i * rows);
        let column = &mut rest[..rows];
        let length = lanes::norm(column);
        for _ in 0..2 {
            for other in before.chunks(rows) {
                let shared = lanes::dot(other, column);
                lanes::add_scaled(column, -shared as f32, other);
            }
        }
        let left = lanes::norm(column);
        // What is left of a combination is rounding only.
        let factor = if left > 1e-5 * length { 1.0 / left } else { 0.0 };
        column.iter_mut().for_each(|x| *x = (f64::from(*x) * factor) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_and_their_inverse() {
        // 2 x 3 with a short last row: [1 2 3; 4 5 0].
        let (matrix, shape) = ([1.0, 2.0, 3.0, 4.0, 5.0], Shape { rows: 2, columns: 3 });
        let mut product = [0.0; 4];
        times(&matrix, shape, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &mut product);
        assert_eq!(product, [1.0, 4.0, 6.0, 9.0]);
        let mut product = [9.0; 3];
        transposed_times(&matrix, shape, &[1.0, 10.0], &mut product);
        assert_eq!(product, [41.0, 52.0, 3.0]);
        let mut sum = matrix;
        add_product(&mut sum, shape, -1.0, &[1.0, 1.0], &[1.0, 2.0, 3.0]);
        assert_eq!(sum, [0.0, 0.0, 0.0, 3.0, 3.0]);
        assert_eq!(Shape::square(10), Shape { rows: 3, columns: 4 });
        assert_eq!(Shape::square(0), Shape { rows: 0, columns: 1 });
    }

    #[test]
    fn columns_become_orthonormal() {
        let rows = 50;
        let mut columns: Vec<_> = (0..4 * rows).map(|i| ((i * i) as f32 * 0.37).sin() * 1e3).collect();
        // The third is a combination of the first two.
        for i in 0..rows {
            columns[2 * rows + i] = 2.0 * columns[i] - columns[rows + i];
        }
        orthonormalize(&mut columns, rows);
        let column = |i: usize| &columns[i * rows..(i + 1) * rows];
        for (i, j, expected) in
            [(0, 0, 1.0), (1, 1, 1.0), (2, 2, 0.0), (3, 3, 1.0), (0, 1, 0.0), (0, 3, 0.0), (1, 3, 0.0)]
        {
            assert!((lanes::dot(column(i), column(j)) - expected).abs() < 1e-6, "{i} and {j}");
        }
    }
}
