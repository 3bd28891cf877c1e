"""scikit-learn's own contract for estimators, whole."""

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from clearhead.tasks.table_estimators import TableClassifier, TableRegressor

# Twelve wide, and 16 inside: some processors multiply widths such as 10 in an order that depends on a row's place, and
# one check wants rows to answer alike to 1e-9 in any order.
TINY: dict[str, Any] = {"layers": 1, "width": 12, "heads": 1, "dropout": 0.0, "learning_rate": 0.03, "random_state": 0}
SHORT: dict[str, Any] = {"epochs": 12, "patience": 0, "batch_size": 64}


def expected(estimator: Any) -> dict[str, str]:
    reason = "rows are shuffled into mini-batches: a row of weight 2 meets other rows than the same row twice"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [TableClassifier(**TINY, **SHORT), TableRegressor(**TINY, **SHORT)], expected_failed_checks=expected
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
