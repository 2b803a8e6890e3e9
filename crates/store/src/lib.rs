//! Journal, rows, objects, time series, logs; bytes and rows, no policy.
