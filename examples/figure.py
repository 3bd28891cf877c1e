"""Figures for a paper, from a real model: vector graphics as wide as a column, with text as text.

python examples/figure.py figures runs/demo "je suis étudiant"
"""

import sys
from pathlib import Path

from clearhead.draw.figure import PAGE, Sheet
from clearhead.draw.matrix import matrix
from clearhead.tasks.loading import load_model
from clearhead.tasks.picturing import picture
from clearhead.tasks.viewing import Off, Viewer


def main(out: str, model: str = "runs/demo", text: str = "je suis étudiant") -> list[Path]:
    """Draw what the model does with the text: ready-made pictures, and one from numbers of one's own."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    viewer = Viewer(load_model(model))
    view = viewer.view(text)

    picture(view, "attention", layer=0, head=0).save(folder / "head.pdf")
    picture(view, "lens", on=PAGE).save(folder / "lens.pdf")
    picture(view, "diagram", on=Sheet("column", dark=True)).save(folder / "diagram-dark.svg")

    # Any quantity by its name; here, how much a head's attention changes when another is switched off.
    first, *_, last = viewer.attentions()
    tap = f"{last.name}.weights"
    whole, without = (viewer.view(text, view.answer, off=off) for off in (None, Off({first.name: [0]})))
    change = (without.seen(tap)[tap].tensor - whole.seen(tap)[tap].tensor)[0, 0]
    rows, columns = (whole.sides[side].tokens for side in (last.queries, last.keys))
    drawn = matrix(change, rows=rows, columns=columns, heading=last.name, what="change", says=f"without {first.name}:0")
    drawn.save(folder / "change.svg")
    return sorted(folder.iterdir())


if __name__ == "__main__":
    for path in main(*sys.argv[1:4]):
        print(path)
