"""Where the numbers of an attention came from, step by step from its output back to what it reads."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.nn.attention import CrossProjection, MultiHeadAttention
from clearhead.nn.positions_absolute import angles, frequencies
from clearhead.nn.positions_relative import DistanceValue
from clearhead.nn.positions_rotary import Rotation
from clearhead.nn.scores import Additive, Cosine, General
from clearhead.tasks.cells import Explain, Made, Place, Term, dot, in_words, unexplained
from clearhead.tasks.cells_bias import bias_terms, value_row
from clearhead.tasks.cells_stream import Values
from clearhead.tasks.inspecting import Shown

__all__ = ["AttentionCells"]


class AttentionCells:
    """The quantities of one attention.

    reads    of which quantities queries and keys are made
    tokens   of queries and keys, for labels
    off      heads that are switched off
    """

    def __init__(
        self,
        name: str,
        attention: MultiHeadAttention,
        values: Values,
        *,
        reads: tuple[str, str],
        tokens: tuple[tuple[str, ...], tuple[str, ...]],
        off: frozenset[int],
    ) -> None:
        self.name, self.attention, self.values = name, attention, values
        self.reads, self.off = {"q": reads[0], "k": reads[1], "v": reads[1]}, off
        self.slots = 0 if attention.memory is None else attention.memory.slots
        self.asking, self.asked = tokens[0], [*(f"memory {i}" for i in range(self.slots)), *tokens[1]]

    def explanations(self) -> dict[str, Explain]:
        """How the numbers of each quantity are made, by its full name."""
        found: dict[str, Explain] = {
            **{letter: self._turned if self._turns(letter) else self._projected for letter in "qkv"},
            "scores": self._scores,
            "scaled": self._scaled,
            "bias": self._bias,
            "masked": self._masked,
            "weights": self._weights,
            "heads": self._heads,
            "output": self._output,
            **{f"{letter}_straight": self._projected for letter in "qk" if self._turns(letter)},
            **{f"{letter}_prepared": explain for letter, (_, explain) in self._prepared().items()},
        }
        return {f"{self.name}.{tap}": explain for tap, explain in found.items()}

    def without_tap(self) -> dict[str, Callable[[], Shown]]:
        """What is made here because it passes no tap: before rotation, and as some scores take it."""
        found: dict[str, Callable[[], Shown]] = {
            **{f"{letter}_straight": partial(self._straight, letter) for letter in "qk" if self._turns(letter)},
            **{f"{letter}_prepared": shown for letter, (shown, _) in self._prepared().items()},
        }
        return {f"{self.name}.{tap}": shown for tap, shown in found.items()}

    def _at(self, tap: str) -> Tensor:
        return self.values(f"{self.name}.{tap}")

    def _place(self, tap: str, head: int | None, row: int, column: int) -> Place:
        return Place(f"{self.name}.{tap}", head, row, column)

    def _group(self, head: int) -> int:
        return head // (self.attention.heads // self.attention.kv_heads)

    def _output(self, place: Place) -> Made:
        y_HK, out = self._at("heads")[:, place.row], self.attention.out
        width = self.attention.head_width
        weight = out.weight[place.column].detach().cpu()
        terms = dot(y_HK.flatten(), weight, "y·W", lambda at: self._place("heads", at // width, place.row, at % width))
        if out.bias is not None:
            terms.append(Term.of("bias", (float(out.bias[place.column]), None)))
        return Made(f"what all heads read for {self.asking[place.row]!r}, times W^O", "Σ_h Σ_k y_hk W_hk + b", terms)

    def _heads(self, place: Place) -> Made:
        head, row, column = self._index(place)
        if head in self.off:
            return Made("this head is switched off", "0", [])
        weights_M, v_M = self._at("weights")[head, row], self._values_of(head)[:, column]
        group = self._group(head)
        terms = []
        for key, (weight, value) in enumerate(zip(weights_M.tolist(), v_M.tolist(), strict=True)):
            came = None if key < self.slots else self._place("v", group, key - self.slots, column)
            seen = (weight, self._place("weights", head, row, key))
            terms.append(Term.of(f"w·v of {self.asked[key]!r}", seen, (value, came)))
        if isinstance(self.attention.positions.value, DistanceValue):
            added_M = value_row(self.attention.positions.value, row, len(weights_M) - self.slots)[:, column]
            terms += [
                Term.of(f"w·a of {self.asked[key]!r}", (float(weights_M[key]), self._place("weights", head, row, key)),
                        (added, None))
                for key, added in enumerate(added_M.tolist(), self.slots)
            ]  # fmt: skip
        return Made(f"the values, weighed by what {self.asking[row]!r} looks at", "Σ_j w_j v_j", terms)

    def _weights(self, place: Place) -> Made:
        head, row, column = self._index(place)
        masked_M = self._at("masked")[head, row].tolist()
        if all(score == float("-inf") for score in masked_M):
            return Made(f"{self.asking[row]!r} may look at nothing", "0", [])
        seen = [key for key, score in enumerate(masked_M) if score > float("-inf")]
        if column not in seen:
            return Made(f"{self.asking[row]!r} may not look at {self.asked[column]!r}", "exp(−∞) = 0", [])
        terms = [
            Term.of(f"{self.asked[key]!r}", (masked_M[key], self._place("masked", head, row, key)))
            for key in [column, *(key for key in seen if key != column)]
        ]
        says = f"softmax of the masked scores of {self.asking[row]!r}"
        return Made(says, f"exp(s_{row},{column}) / Σ_j exp(s_{row},j)", terms, "softmax")

    def _masked(self, place: Place) -> Made:
        head, row, column = self._index(place)
        if float(self._at("masked")[place[1:]]) == float("-inf"):
            return Made(f"the mask hides {self.asked[column]!r} from {self.asking[row]!r}", "−∞", [])
        terms = [self._same("scaled", head, row, column, column)]
        if self.attention.positions.bias is not None and column >= self.slots:
            terms.append(self._same("bias", head, row, column, column - self.slots))
        return Made("the scaled score with what positions add, where the mask lets it pass", "s + bias", terms)

    def _same(self, tap: str, head: int, row: int, column: int, there: int) -> Term:
        value = float(self._at(tap)[head, row, there])
        return Term.of(f"{tap} of {self.asked[column]!r}", (value, self._place(tap, head, row, there)))

    def _scaled(self, place: Place) -> Made:
        head, row, column = self._index(place)
        score = (float(self._at("scores")[head, row, column]), self._place("scores", head, row, column))
        return Made("the score, scaled", "scale · s", [Term.of("scale · s", (self.attention.score.scale, None), score)])

    def _bias(self, place: Place) -> Made:
        head, row, column = self._index(place)
        bias = self.attention.positions.bias
        assert bias is not None  # otherwise nothing passes this tap
        q_K, k_K = self._at("q")[head, row], self._at("k")[self._group(head), column]
        asked = (q_K, lambda at: self._place("q", head, row, at))
        answering = (k_K, lambda at: self._place("k", self._group(head), column, at))
        scale = self.attention.score.scale if bias.inside else 1.0
        return bias_terms(bias, head, (row, column, self._at("k").shape[1]), asked, answering, scale)

    def _scores(self, place: Place) -> Made:
        head, row, column = self._index(place)
        score = self.attention.score
        formula, says = "Σ_i q_i k_i", f"how well the key of {self.asked[column]!r} answers {self.asking[row]!r}"
        if isinstance(score, Additive):
            return Made(says, "Σ_i v_i tanh(a_i + b_i)", self._additive_terms(score, head, row, column))
        prepared = self._prepared()
        q_K, asked = self._side(prepared, "q", head, row)
        k_K, answering = self._side(prepared, "k", head, column)
        pairs = zip(q_K.tolist(), k_K.tolist(), strict=True)
        terms = [Term.of(f"q·k_{at}", (q, asked(at)), (k, answering(at))) for at, (q, k) in enumerate(pairs)]
        return Made(says, formula, terms)

    def _side(
        self, prepared: Mapping[str, object], letter: str, head: int, row: int
    ) -> tuple[Tensor, Callable[[int], Place | None]]:
        """A query or a key as the score takes it, and where its numbers stand."""
        if letter in prepared:
            tap = f"{letter}_prepared"
            return self._at(tap)[head, row], lambda at: self._place(tap, head, row, at)
        if letter == "q":
            return self._at("q")[head, row], lambda at: self._place("q", head, row, at)
        group = self._group(head)
        return self._keys_of(head)[
            row
        ], lambda at: None if row < self.slots else self._place("k", group, row - self.slots, at)

    def _additive_terms(self, score: Additive, head: int, row: int, column: int) -> list[Term]:
        asks, answers = self._at("q_prepared")[head, row], self._at("k_prepared")[head, column]
        terms = []
        for at, (a, b, v) in enumerate(
            zip(asks.tolist(), answers.tolist(), score.vector_HK[head].tolist(), strict=True)
        ):
            came = (self._place("q_prepared", head, row, at), self._place("k_prepared", head, column, at), None)
            value = v * float(torch.tanh(torch.tensor(a + b)))
            terms.append(Term(f"v·tanh(a + b)_{at}", (a, b, v), came, value))
        return terms

    def _prepared(self) -> dict[str, tuple[Callable[[], Shown], Explain]]:
        """What some scores make of queries and keys before they meet, memory's keys first."""
        match self.attention.score:
            case General(weight_HKK=matrix):
                return {"q": self._times("q", matrix)}
            case Additive(query_HKK=query, key_HKK=key):
                return {"q": self._times("q", query), "k": self._times("k", key)}
            case Cosine():
                return {"q": self._unit("q"), "k": self._unit("k")}
        return {}

    def _rows(self, letter: str) -> Tensor:
        """Queries or keys of every head, memory's keys first."""
        if letter == "q":
            return self._at("q")
        return torch.stack([self._keys_of(head) for head in range(self.attention.heads)])

    def _times(self, letter: str, matrix_HKK: Tensor) -> tuple[Callable[[], Shown], Explain]:
        def made(place: Place) -> Made:
            head, row, column = self._index(place)
            x_K, came = self._side({}, letter, head, row)
            terms = dot(x_K, matrix_HKK[head, :, column].detach().cpu(), f"{letter}·W", came)
            return Made("times the matrix of this head's score", "Σ_i x_i W_i", terms)

        return lambda: Shown(self._rows(letter) @ matrix_HKK.detach().cpu(), "HLK"), made

    def _unit(self, letter: str) -> tuple[Callable[[], Shown], Explain]:
        def made(place: Place) -> Made:
            head, row, column = self._index(place)
            x_K, came = self._side({}, letter, head, row)
            inverse = 1 / max(float(x_K.norm()), 1e-12)
            return Made(
                "brought to length 1",
                "x / ‖x‖",
                [Term.of("x / ‖x‖", (float(x_K[column]), came(column)), (inverse, None))],
            )

        return lambda: Shown(F.normalize(self._rows(letter), dim=-1), "HLK"), made

    def _turns(self, letter: str) -> bool:
        return letter in "qk" and self.attention.positions.rotate is not None

    def _turned(self, place: Place) -> Made:
        """A pair of columns, turned by position · frequency."""
        head, row, column = self._index(place)
        rotate, tap = self.attention.positions.rotate, f"{place.tap.rpartition('.')[2]}_straight"
        if not isinstance(rotate, Rotation):
            return unexplained("how this model turns queries and keys is not taken apart here")
        half = rotate.head_width // 2
        pair = column // 2 if rotate.interleaved else column % half
        columns = (2 * pair, 2 * pair + 1) if rotate.interleaved else (pair, pair + half)
        frequency = rotate.stretch(frequencies(rotate.head_width, rotate.base, torch.device("cpu")))
        angle = angles(torch.tensor(row), frequency)[pair]
        cosine, sine = float(angle.cos()), float(angle.sin())
        times = (cosine, -sine) if column == columns[0] else (sine, cosine)
        straight_K = self._at(tap)[head, row]
        terms = [
            Term.of(name, (float(straight_K[at]), self._place(tap, head, row, at)), (by, None))
            for name, at, by in zip(("first of the pair", "second of the pair"), columns, times, strict=True)
        ]
        return Made(f"a pair of columns turned by {float(angle):.4g} at position {row}", "x cos θ ∓ y sin θ", terms)

    def _projected(self, place: Place) -> Made:
        head, row, column = self._index(place)
        letter = place.tap.rpartition(".")[2][0]
        source, at = self.reads[letter], head * self.attention.head_width + column
        weight, bias = self._matrix(letter)
        terms = dot(self.values(source)[row], weight[at], "x·W", lambda i: Place(source, None, row, i))
        if float(bias[at]):
            terms.append(Term.of("bias", (float(bias[at]), None)))
        token = (self.asking if letter == "q" else self.asked[self.slots :])[row]
        says = f"{in_words(source)} at {token!r} times W^{letter.upper()}"
        return Made(says, f"{letter} = Σ_i x_i W_i + b", terms)

    def _straight(self, letter: str) -> Shown:
        """Queries or keys before they are turned."""
        y_LW = F.linear(self.values(self.reads[letter]), *self._matrix(letter))
        return Shown(y_LW.unflatten(-1, (-1, self.attention.head_width)).transpose(0, 1), "HLK")

    def _matrix(self, letter: str) -> tuple[Tensor, Tensor]:
        """W^Q, W^K or W^V, and its bias: what the projection makes of zeros."""
        attention, project = self.attention, self.attention.project
        nothing = attention.out.weight.new_zeros(1, attention.width)
        if isinstance(project, CrossProjection):
            context = attention.out.weight.new_zeros(1, project.context_width)
            given = torch.cat([project.q(nothing), project.kv(context)], dim=-1)
        else:
            given = project(nothing)
        biases = dict(zip("qkv", given[0].split(attention.sizes), strict=True))
        return attention.matrices()[letter].detach().cpu(), biases[letter].detach().cpu()

    def _keys_of(self, head: int) -> Tensor:
        return self._with_memory("k", "keys_GPK", head)

    def _values_of(self, head: int) -> Tensor:
        return self._with_memory("v", "values_GPK", head)

    def _with_memory(self, letter: str, learned: str, head: int) -> Tensor:
        group, memory = self._group(head), self.attention.memory
        own_MK = self._at(letter)[group]
        return own_MK if memory is None else torch.cat([getattr(memory, learned)[group].detach().cpu(), own_MK])

    @staticmethod
    def _index(place: Place) -> tuple[int, int, int]:
        assert place.head is not None  # `explained` has looked at the shape
        return place.head, place.row, place.column
