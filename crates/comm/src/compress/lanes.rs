//! Loops over slices, compiled for this machine's vectors. Sums are kept in 16 parts, whatever the
//! vectors' width: the same bits on every machine.

/// Defines a function whose body is compiled for AVX-512 and AVX2 too, and which takes the widest
/// version that the processor has.
macro_rules! vectorised {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        pub(in crate::compress) fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn widest($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn wide($($argument: $type),*) $(-> $result)? {
                    body($($argument),*)
                }
                if $crate::reduce::has_avx512() {
                    #[expect(unsafe_code, reason = "a function for some processors only")]
                    // SAFETY: this processor has these parts of AVX-512.
                    return unsafe { widest($($argument),*) };
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    #[expect(unsafe_code, reason = "a function for some processors only")]
                    // SAFETY: this processor has AVX2.
                    return unsafe { wide($($argument),*) };
                }
            }
            body($($argument),*)
        }
    };
}
pub(super) use vectorised;

/// How many parts a sum is kept in.
const PARTS: usize = 16;
/// Elements whose sum is kept in f32.
const STRETCH: usize = 1024;

vectorised! {
    /// Dot product: f32 products, summed in f32 over 1024 elements and in f64 beyond.
    fn dot(a: &[f32], b: &[f32]) -> f64 {
        let mut sum = 0.0;
        for (a, b) in a.chunks(STRETCH).zip(b.chunks(STRETCH)) {
            let mut parts = [0_f32; PARTS];
            let (whole_a, rest_a) = a.as_chunks::<PARTS>();
            let (whole_b, rest_b) = b.as_chunks::<PARTS>();
            for (a, b) in whole_a.iter().zip(whole_b) {
                for i in 0..PARTS {
                    parts[i] += a[i] * b[i];
                }
            }
            for (part, (a, b)) in parts.iter_mut().zip(rest_a.iter().zip(rest_b)) {
                *part += a * b;
            }
            sum += parts.iter().map(|part| f64::from(*part)).sum::<f64>();
        }
        sum
    }
}

/// L2 norm.
pub(super) fn norm(values: &[f32]) -> f64 {
    dot(values, values).sqrt()
}

vectorised! {
    /// `to += factor * from`.
    fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to += factor * from;
        }
    }
}

vectorised! {
    /// `sum = a + b`.
    fn add(sum: &mut [f32], a: &[f32], b: &[f32]) {
        for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
            *sum = a + b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_every_element_once() {
        for len in [0, 1, 15, 16, 17, 1024, 1025, 5000] {
            let a: Vec<_> = (0..len).map(|i| (i % 7) as f32).collect();
            let expected: usize = (0..len).map(|i| (i % 7) * (i % 7)).sum();
            assert_eq!(dot(&a, &a), expected as f64, "{len}");
            let mut sum = vec![1.0; len];
            add(&mut sum, &a, &a);
            add_scaled(&mut sum, -2.0, &a);
            assert!(sum.iter().all(|x| *x == 0.0), "{len}");
        }
    }
}
