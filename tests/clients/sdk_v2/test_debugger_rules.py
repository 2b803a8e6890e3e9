"""The Debugger as SDK v2 asks for it: `rule_configs` on the built-in XGBoost, without any code of the
user's, and `Rule.custom`.
"""

import data
import pytest
import sagemaker
from house import eventually
from jobs import ROLE, XGBOOST
from sagemaker.debugger import CollectionConfig, DebuggerHookConfig, Rule, rule_configs
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput


@pytest.fixture(scope="module")
def session(environment):
    return sagemaker.Session()


@pytest.fixture(scope="module")
def channels(session):
    bucket = session.default_bucket()
    for name, part in (("train", "train"), ("validation", "test")):
        session.upload_string_as_file_body(data.as_csv(data.titanic(part)), bucket, f"debugger/titanic/{name}/data.csv")
    return {
        name: TrainingInput(f"s3://{bucket}/debugger/titanic/{name}", content_type="text/csv")
        for name in ("train", "validation")
    }


#: All that the container's hook can save, each five rounds.
COLLECTIONS = [
    "hyperparameters",
    "metrics",
    "losses",
    "predictions",
    "labels",
    "feature_importance",
    "average_shap",
    "full_shap",
    "trees",
]

OWN_RULE = """
from smdebug.rules.rule import Rule

class Mine(Rule):
    def invoke_at_step(self, step):
        return True
"""


def test_rules_of_trees_judge_the_built_in_algorithm(session, channels, tmp_path):
    bucket = session.default_bucket()
    (tmp_path / "mine.py").write_text(OWN_RULE)
    built_in = {
        "report": Rule.sagemaker(rule_configs.create_xgboost_report()),
        "importance": Rule.sagemaker(
            rule_configs.feature_importance_overweight(), rule_parameters={"threshold": "0.9", "nfeatures": "2"}
        ),
        "one-feature": Rule.sagemaker(
            rule_configs.feature_importance_overweight(),
            name="one-feature",
            rule_parameters={"threshold": "0.2", "nfeatures": "1", "tensor_regex": "feature_importance/gain"},
        ),
        "depth": Rule.sagemaker(rule_configs.tree_depth(), rule_parameters={"depth": "2"}),
        "loss": Rule.sagemaker(
            rule_configs.loss_not_decreasing(),
            rule_parameters={"tensor_regex": "train-logloss", "use_losses_collection": "False", "num_steps": "10"},
        ),
        "overfit": Rule.sagemaker(rule_configs.overfit(), rule_parameters={"ratio_threshold": "0.05"}),
        "confusion": Rule.sagemaker(
            rule_configs.confusion(),
            rule_parameters={"category_no": "2", "labels": "labels", "predictions": "predictions", "min_diag": "0.99"},
        ),
        "imbalance": Rule.sagemaker(
            rule_configs.class_imbalance(),
            rule_parameters={"labels_regex": "labels", "predictions_regex": "predictions", "argmax": "False"},
        ),
    }
    own = Rule.custom(
        name="mine",
        image_uri="503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rule-evaluator:latest",
        instance_type="ml.t3.medium",
        volume_size_in_gb=10,
        source=str(tmp_path / "mine.py"),
        rule_to_invoke="Mine",
    )
    hook = DebuggerHookConfig(
        s3_output_path=f"s3://{bucket}/debugger",
        hook_parameters={"save_interval": "5"},
        collection_configs=[CollectionConfig(name, {"save_interval": "5"}) for name in COLLECTIONS],
    )
    estimator = Estimator(
        image_uri=XGBOOST,
        role=ROLE,
        instance_count=1,
        instance_type="ml.m5.large",
        output_path=f"s3://{bucket}/models",
        sagemaker_session=session,
        hyperparameters={
            "objective": "binary:logistic",
            "num_round": 60,
            "max_depth": 6,
            "eta": 0.3,
            "eval_metric": "logloss,auc",
        },
        debugger_hook_config=hook,
        rules=[*built_in.values(), own],
    )
    estimator.fit(channels, logs=False)
    summary = {it["RuleConfigurationName"]: it for it in estimator.latest_training_job.rule_job_summary()}
    found = {name: summary[rule.name]["RuleEvaluationStatus"] for name, rule in built_in.items()}
    details = {name: it.get("StatusDetails") for name, it in summary.items()}
    assert found == {
        "report": "NoIssuesFound",
        "importance": "NoIssuesFound",
        "one-feature": "IssuesFound",
        "depth": "IssuesFound",
        "loss": "NoIssuesFound",
        "overfit": "IssuesFound",
        "confusion": "IssuesFound",
        "imbalance": "NoIssuesFound",
    }, details
    assert "f1 have" in details["one-feature"], details
    mine = summary["mine"]
    assert mine["RuleEvaluationStatus"] == "Error" and "Python environment" in mine["StatusDetails"], mine
    prefix = f"debugger/{estimator.latest_training_job.name}/debug-output/"
    keys = [key.removeprefix(prefix) for key in session.list_s3_files(bucket, prefix)]
    assert sum(key.startswith("index/") for key in keys) == 12, keys
    # Reports are written when the instances of the ended job are released.
    folder = f"models/{estimator.latest_training_job.name}/rule-output/{built_in['report'].name}/"
    page = eventually(lambda: [key for key in session.list_s3_files(bucket, folder) if key.endswith("report.html")])
    assert "<svg" in session.read_s3_file(bucket, page[0]) and page == [f"{folder}xgboost_report.html"], page
