"""A table: FT-Transformer in place of any other scikit-learn estimator, beside gradient boosting.

python examples/table.py                        # scikit-learn's wine data
python examples/table.py people.csv buys        # your table, and the column to predict
"""

import sys

import pandas as pd
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

from clearhead import TableClassifier


def main(path: str = "", target: str = "target", *, epochs: int = 100) -> float:
    """Fit both on the same rows, and say how they do on the others and which columns matter."""
    frame = pd.read_csv(path) if path else load_wine(as_frame=True).frame
    X, y = frame.drop(columns=target), frame[target]
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)

    model = TableClassifier(epochs=epochs, random_state=0).fit(X_train, y_train)
    trees = HistGradientBoostingClassifier(random_state=0, categorical_features="from_dtype")
    accuracy = float(model.score(X_test, y_test))
    print(f"FT-Transformer     {accuracy:.3f}  after {model.n_iter_} epochs")
    if all(pd.api.types.is_numeric_dtype(kind) for kind in X.dtypes):
        print(f"gradient boosting  {trees.fit(X_train, y_train).score(X_test, y_test):.3f}")

    lost = model.feature_importance(X_test, y_test, method="permutation")
    print("what shuffling a column costs:")
    for name, share in sorted(zip(X.columns, lost, strict=True), key=lambda pair: -pair[1])[:5]:
        print(f"  {share:+.3f}  {name}")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:3])
