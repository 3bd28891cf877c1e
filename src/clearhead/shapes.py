"""The one legend of dimension letters; a tensor's name ends with its dimensions (`q_BHLK`).

| letter | dimension |
|---|---|
| B | batch: sentences, rows of a table, images |
| C | classes, labels, columns |
| D | width of the model (`d` in the papers) |
| F | hidden width of the feed-forward layer |
| G | key-value heads (H for multi-head, 1 for multi-query) |
| H | query heads |
| K | width of one head |
| L | positions that ask (queries) |
| M | positions that are asked (keys and values) |
| N | real tokens of a batch laid end to end, without padding |
| P | memory slots, product keys, pixels of a patch |
| R | relative distances |
| S | experiments, seeds, members of an ensemble |
| T | new tokens of one decoding step |
| V | vocabulary |
| W | any further feature width, said where it is used |
| X | candidates of a search |
"""

LETTERS = frozenset("BCDFGHKLMNPRSTVWX")
