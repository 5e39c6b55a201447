//! Arithmetic that gives the same bits on every target: only operations that IEEE 754 defines
//! exactly.

/// Cube root of a non-negative finite number, good to a few units in the last place. The platform's
/// own may differ between targets, and on Wasm it would be an import.
pub(crate) fn cbrt(x: f64) -> f64 {
    // Negative, zero, NaN: no growth period.
    if x.is_nan() || x <= 0.0 {
        return 0.0;
    }
    // A third of the exponent is within 6 % of the root; each Newton step squares the error.
    const BIAS: u64 = 0x2a9f_7893_782d_a1ce;
    let mut y = f64::from_bits(x.to_bits() / 3 + BIAS);
    for _ in 0..5 {
        y = (2.0 * y + x / (y * y)) / 3.0;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::cbrt;

    #[test]
    fn cube_roots() {
        assert_eq!(cbrt(0.0), 0.0);
        assert_eq!(cbrt(-8.0), 0.0);
        assert_eq!(cbrt(f64::NAN), 0.0);
        let mut x = 1e-9;
        while x < 1e15 {
            let y = cbrt(x);
            assert!((y * y * y / x - 1.0).abs() < 1e-14, "{x} {y}");
            x *= 1.37;
        }
    }
}
