"""A user's script for XGBoost that knows nothing of Debugger."""

import sys

import numpy as np
import xgboost

generator = np.random.default_rng(0)
samples = generator.normal(size=(200, 3))
labels = (samples[:, 0] + samples[:, 1] > 0).astype(int)
if sys.argv[1] == "train":
    train, validation = (xgboost.DMatrix(samples[part], label=labels[part]) for part in (slice(150), slice(150, None)))
    xgboost.train(
        {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"], "max_depth": 2},
        train,
        num_boost_round=12,
        evals=[(train, "train"), (validation, "validation")],
        verbose_eval=False,
    )
else:
    estimator = xgboost.XGBClassifier(n_estimators=12, max_depth=2, eval_metric="logloss")
    estimator.fit(samples[:150], labels[:150], eval_set=[(samples[150:], labels[150:])], verbose=False)
