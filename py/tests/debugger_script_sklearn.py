"""A user's script for scikit-learn."""

from sklearn.linear_model import LinearRegression

print(LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0]).coef_)
