"""What SageMaker's XGBoost image has beside `sagemaker_xgboost_container`."""
