//! Built-in algorithms that need no tensor engine (XGBoost) as ordinary training programs.
