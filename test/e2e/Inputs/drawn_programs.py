"""Programs of the graph dialect, drawn at random, in which every number is a
small integer times a power of two: any order of any sum gives the same bits, in
f32. So a step of one rank and a step of many must be equal, not almost equal.

Weights are -1, 0 or 1, layers add, multiply, move and count; the loss is a sum
of products, its cotangent one over a power of two of tokens; the optimizer is
SGD with rate 1 and momentum, which keeps the gradient beside the weight.
"""
import json
import random

import drawn_models

VOCABULARY = 400


def quoted(text):
    """As a string of MLIR."""
    return '"' + "".join(c if 31 < ord(c) < 127 and c not in '"\\'
                         else f"\\{ord(c):02X}" for c in text) + '"'


def tensor(shape, element="f32"):
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


class Function:
    """Text of one function: ops in order, names made up as they come."""

    def __init__(self):
        self.lines, self.count = [], 0

    def op(self, text, *types):
        """`text` with {0}, {1} for names that are made; the names."""
        names = [f"%v{self.count + i}" for i in range(max(1, len(types)))]
        self.count += len(names)
        self.lines.append(f"    {', '.join(names)} = {text}")
        return names[0] if len(names) == 1 else names

    def unary(self, kind, x, shape):
        return self.op(f"graph.{kind} {x} : {tensor(shape)}")

    def binary(self, kind, x, y, shape, element="f32"):
        return self.op(f"graph.{kind} {x}, {y} : {tensor(shape, element)}")

    def einsum(self, equation, x, first, y, second, shape):
        return self.op(f'graph.einsum "{equation}" {x}, {y} : ({tensor(first)}, '
                       f"{tensor(second)}) -> {tensor(shape)}")

    def view(self, text, before, after, element="f32"):
        return self.op(f"graph.{text} : {tensor(before, element)} -> "
                       f"{tensor(after, element)}")


class ProgramCase(drawn_models.Case):
    """As Case, of a program instead of a model."""

    def __init__(self, seed, most):
        draw = random.Random(seed)
        self.seed, self.exact = seed, True
        self.heads, self.experts = draw.choice([2, 3, 4]), draw.choice([3, 4, 5])
        self.width = self.heads * draw.choice([2, 3])
        self.inner = draw.choice([5, 6, 8])
        # Together a power of two; no axis of three or more divides them all.
        self.settings = {"batch.micro": draw.choice([2, 4, 8]),
                         "batch.accumulate": draw.choice([1, 2, 4]),
                         "batch.sequence": draw.choice([8, 16]),
                         "recompute": draw.choice(["none", "full"])}
        self.config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
            "vocab_size": VOCABULARY, "n_positions": 32, "n_embd": self.width * 2,
            "n_head": 2, "n_layer": 1, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            "resid_pdrop": 0.0}
        self.shape = [self.settings["batch.micro"], self.settings["batch.sequence"],
                      self.width]
        self.parameters = {"embedding": [VOCABULARY, self.width]}
        self.layers = self.draw_layers(draw)
        self.calls = [self.add_parameters(i, layer)
                      for i, layer in enumerate(self.layers)]
        self.parameters["head"] = [VOCABULARY, self.width]
        self.meshes = self.draw_meshes(draw, most)

    def draw_layers(self, draw):
        kinds = [self.dense, self.scaled_heads, self.routed]
        # Products of three numbers that grow: first, where they are the least.
        return [draw.choice([self.mixing, *kinds]),
                *(draw.choice(kinds) for _ in range(draw.choice([1, 2])))]

    def largest(self):
        staged = self.settings["batch.accumulate"] > 1
        routed = self.routed in self.layers
        return {"data": self.settings["batch.micro"], "context": 4,
                "expert": self.experts if routed else 1, "tensor": self.heads,
                "pipe": len(self.layers) if staged else 1}

    def dispatch(self, mesh):
        """Its rows are written down as they are: nothing marks an exchange."""
        return "auto"

    def arguments(self, folder, mesh):
        file = folder / "program.mlir"
        file.write_text(self.text())
        return ["--from", "import", file]

    def kind(self):
        return "bitwise"

    def __str__(self):
        layers = " ".join(layer.__name__ for layer in self.layers)
        return f"seed {self.seed}: program {layers} {self.settings}"

    #===--- layers -------------------------------------------------------===#

    def add_parameters(self, i, layer):
        """Names of a layer's parameters, which it then has."""
        d, e, f = self.width, self.experts, self.inner
        shapes = {self.dense: {"up": [d, f], "bias": [f], "down": [f, d]},
                  self.mixing: {"value": [d, d]},
                  self.scaled_heads: {"scale": [self.heads, d // self.heads]},
                  self.routed: {"experts": [e, d, d]}}[layer]
        named = {f"{i}.{name}": shape for name, shape in shapes.items()}
        self.parameters |= named
        return list(named)

    def dense(self, f, x, up, bias, down):
        inner = [*self.shape[:2], self.inner]
        d, n = self.width, self.inner
        y = f.einsum("btk,kn->btn", x, self.shape, up, [d, n], inner)
        b = f.view(f"broadcast {bias} dims [2]", [n], inner)
        y = f.unary("relu", f.binary("add", y, b, inner), inner)
        y = f.einsum("btk,kn->btn", y, inner, down, [n, d], self.shape)
        return f.binary("add", x, y, self.shape)

    def mixing(self, f, x, value):
        """Linear attention: of each token with all of its sequence."""
        batch, tokens, d = self.shape
        v = f.einsum("btk,kn->btn", x, self.shape, value, [d, d], self.shape)
        scores = f.einsum("btd,bsd->bts", x, self.shape, x, self.shape,
                          [batch, tokens, tokens])
        return f.einsum("bts,bsd->btd", scores, [batch, tokens, tokens], v,
                        self.shape, self.shape)

    def scaled_heads(self, f, x, scale):
        """Heads apart, each element of a head times its own weight, or the sum
        of its head where that is more. (The gradient of a largest of three
        that are equal would be thirds.)"""
        batch, tokens, d = self.shape
        h, w = self.heads, d // self.heads
        apart = [batch, tokens, h, w]
        turned = [batch, h, tokens, w]
        y = f.view(f"reshape {x}", self.shape, apart)
        y = f.view(f"transpose {y} [0, 2, 1, 3]", apart, turned)
        s = f.view(f"broadcast {scale} dims [1, 3]", [h, w], turned)
        y = f.binary("mul", y, s, turned)
        total = f.view(f"reduce {y} sum dims [3]", turned, turned[:3])
        total = f.view(f"broadcast {total} dims [0, 1, 2]", turned[:3], turned)
        y = f.binary("max", y, total, turned)
        y = f.view(f"transpose {y} [0, 2, 1, 3]", turned, apart)
        return f.view(f"reshape {y}", apart, self.shape)

    def choose(self, f, flat):
        """i32 [n, k], experts of each token: the two that its numbers name."""
        [n, d], e = [self.shape[0] * self.shape[1], self.width], self.experts
        scores = f.view(f"slice {flat} [0, 0]", [n, d], [n, min(e, d)])
        return f.op(f"graph.top_k {scores} : ({tensor([n, min(e, d)])}) -> "
                    f"{tensor([n, 2], 'i32')}"), 2

    def multiply(self, f, rows, slots, experts, offsets, sizes):
        """The rows of each expert times its matrix."""
        m, d, e, _ = sizes
        return f.op(f"graph.grouped_matmul {rows}, {experts} groups {offsets} : "
                    f"({tensor([m, d])}, {tensor([e, d, d])}, "
                    f"{tensor([e + 1], 'i32')}) -> {tensor([m, d])}")

    def routed(self, f, x, experts):
        """Each token to the experts that it chooses."""
        batch, tokens, d = self.shape
        n, e = batch * tokens, self.experts
        flat = f.view(f"reshape {x}", self.shape, [n, d])
        ids, k = self.choose(f, flat)
        offsets, slots = f.op(
            f"graph.group_rows {ids} : ({tensor([n, k], 'i32')}) -> "
            f"({tensor([e + 1], 'i32')}, {tensor([n, k], 'i32')})", 0, 1)
        rows = f.op(f"graph.dispatch_rows {flat} slots {slots} : "
                    f"({tensor([n, d])}, {tensor([n, k], 'i32')}) -> "
                    f"{tensor([k * n, d])}")
        rows = self.multiply(f, rows, slots, experts, offsets, (k * n, d, e, [n, k]))
        y = f.op(f"graph.combine_rows {rows} slots {slots} : "
                 f"({tensor([k * n, d])}, {tensor([n, k], 'i32')}) -> "
                 f"{tensor([n, d])}")
        y = f.view(f"reshape {y}", [n, d], self.shape)
        return f.binary("add", x, y, self.shape)

    #===--- the module ---------------------------------------------------===#

    def state(self, name):
        decay = "graph.decay, " if len(self.parameters[name]) > 1 else ""
        return (f"{{{decay}graph.role = #graph<role parameter>, "
                f'graph.state = "{name}"}}')

    def layer_text(self, i, layer, names):
        f = Function()
        arguments = [f"%p{j}" for j in range(len(names))]
        result = layer(f, "%x", *arguments)
        types = [tensor(self.parameters[name]) for name in names]
        taken = ", ".join(f"{a}: {t}" for a, t in zip(arguments, types))
        x = tensor(self.shape)
        return "\n".join([
            f"  func.func private @layer{i}(%x: {x}, {taken}) -> {x} "
            "attributes {graph.block} {", *f.lines,
            f"    return {result} : {x}", "  }"])

    def loss_text(self):
        f, x = Function(), tensor(self.shape)
        names = {name: f"%p{i}" for i, name in enumerate(self.parameters)}
        ids, rows = tensor(self.shape[:2], "i32"), tensor([VOCABULARY, self.width])
        value = f.op(f"graph.embedding {names['embedding']}, %tokens : ({rows}, "
                     f"{ids}) -> {x}")
        for i, call in enumerate(self.calls):
            types = ", ".join(tensor(self.parameters[name]) for name in call)
            given = ", ".join(names[name] for name in call)
            value = f.op(f"call @layer{i}({value}, {given}) {{graph.layer = "
                         f"#graph.layer<{i}>}} : ({x}, {types}) -> {x}")
        picked = f.op(f"graph.embedding {names['head']}, %targets : ({rows}, {ids})"
                      f" -> {x}")
        value = f.binary("mul", value, picked, self.shape)
        loss = f.view(f"reduce {value} sum dims [0, 1, 2]", self.shape, [])
        taken = ", ".join(f"{names[name]}: {tensor(shape)} {self.state(name)}"
                          for name, shape in self.parameters.items())
        inputs = ", ".join(f'%{name}: {kind} {{graph.input = "{name}"}}' for name, kind in
            (("tokens", ids), ("targets", ids), ("seed", "tensor<i64>"),
             ("step", "tensor<i64>"), ("offset", "tensor<i64>")))
        return "\n".join([
            f"  func.func @loss({taken}, {inputs}) -> (tensor<f32> "
            '{graph.output = "loss_sum"}) '
            "attributes {graph.program = #graph.program<loss>} {", *f.lines,
            f"    return {loss} : tensor<f32>", "  }"])

    def init_text(self):
        """Uniform numbers times three, without their fraction, less one."""
        f = Function()
        seed = f.view("reshape %seed", [1], [], "i64")
        zero = f.op("graph.constant dense<0> : tensor<i64>")
        values = []
        for i, shape in enumerate(self.parameters.values()):
            x = f.op(f"graph.random uniform stream {i} seed {seed} step {zero} : "
                     f"tensor<i64>, tensor<i64> -> {tensor(shape)}")
            three = f.op(f"graph.constant dense<3.0> : {tensor(shape)}")
            one = f.op(f"graph.constant dense<1.0> : {tensor(shape)}")
            x = f.binary("mul", x, three, shape)
            x = f.op(f"graph.convert {x} : {tensor(shape)} -> {tensor(shape, 'i32')}")
            x = f.op(f"graph.convert {x} : {tensor(shape, 'i32')} -> {tensor(shape)}")
            values.append(f.binary("sub", x, one, shape))
        given = ", ".join(f"{tensor(shape)} {self.state(name)}"
                          for name, shape in self.parameters.items())
        types = ", ".join(map(tensor, self.parameters.values()))
        return "\n".join([
            '  func.func @init(%seed: tensor<1xi64> {graph.input = "seed"}) -> '
            f"({given}) "
            "attributes {graph.program = #graph.program<init>} {", *f.lines,
            f"    return {', '.join(values)} : {types}", "  }"])

    def text(self):
        recipe = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.5,
                                "weight_decay": 0.0, "clip": 0.0},
                  "lr_schedule": {"name": "constant", "warmup": 0}}
        for key, value in self.settings.items():
            group, _, name = key.partition(".")
            if name:
                recipe.setdefault(group, {})[name] = value
            else:
                recipe[group] = value
        attributes = ", ".join(f"tessera.{key} = {quoted(text)}" for key, text in
            (("config", json.dumps(self.config)), ("mode", "train"),
             ("phase", "import"), ("recipe", json.dumps(recipe))))
        layers = [self.layer_text(i, layer, names) for i, (layer, names)
                  in enumerate(zip(self.layers, self.calls))]
        return "\n".join([f"module attributes {{{attributes}}} {{",
                          self.loss_text(), *layers, self.init_text(), "}"]) + "\n"


class PartedProgram(drawn_models.Parted, ProgramCase):
    """On meshes whose gathers and scatters go in parts."""


class ReplicatedProgram(drawn_models.Replicated, ProgramCase):
    """On meshes of replicas."""


class SkewedProgram(ProgramCase):
    """Rows exchanged with room for `buffer` times the mean, while all tokens choose
    of the same one to three experts: one has all rows, or one rank has."""
    BUFFERS = (1.5, 1.5, 0.5)

    def draw_layers(self, draw):
        self.buffer = draw.choice(self.BUFFERS)
        self.experts = draw.choice([4, 8])
        self.each = draw.choice([1, 1, 2])  # experts of a token
        self.hot = self.each + draw.choice([0, 0, 1])
        self.first = draw.randrange(self.experts - self.hot + 1)
        layers = super().draw_layers(draw)
        layers[draw.randrange(len(layers))] = self.routed
        return layers

    def draw_meshes(self, draw, most, count=drawn_models.MESHES):
        """Those on which experts divide evenly, and rows are exchanged."""
        found = []
        for mesh in super().draw_meshes(draw, most, count=60):
            sizes = dict(part.split("=") for part in mesh.split(","))
            if self.exchanges({axis: int(sizes[axis]) for axis in ("data", "expert", "context", "tensor")}):
                found.append(mesh)
        return found[:count]

    def exchanges(self, sizes):
        expert = sizes["expert"]
        return (expert > 1 and self.experts % expert == 0
                and sizes["data"] * expert <= self.shape[0])

    def choose(self, f, flat):
        """`each` of the hot experts, named by a token's own numbers."""
        n, d, k = self.shape[0] * self.shape[1], self.width, self.each
        scores = f.view(f"slice {flat} [0, 0]", [n, d], [n, self.hot])
        chosen = f.op(f"graph.top_k {scores} : ({tensor([n, self.hot])}) -> "
                      f"{tensor([n, k], 'i32')}")
        first = f.op(f"graph.constant dense<{self.first}> : {tensor([n, k], 'i32')}")
        return f.binary("add", chosen, first, [n, k], "i32"), k

    def multiply(self, f, rows, slots, experts, offsets, sizes):
        """On the ranks of the experts."""
        m, d, e, choices = sizes
        how = f"slots {slots} groups {offsets} {{always, buffer = {self.buffer} : f64}}"
        types = f"({tensor([m, d])}, {tensor(choices, 'i32')}, {tensor([e + 1], 'i32')})"
        sent, theirs = f.op(
            f"graph.send_rows {rows} {how} : {types} -> "
            f"({tensor([m, d])}, {tensor([e + 1], 'i32')})", 0, 1)
        made = super().multiply(f, sent, slots, experts, theirs, sizes)
        return f.op(f"graph.return_rows {made} {how} : {types} -> {tensor([m, d])}")

    def __str__(self):
        return (f"{super().__str__()}, all tokens to {self.each} of experts {self.first} to "
                f"{self.first + self.hot - 1} of {self.experts}, buffer {self.buffer}")


class FoldedProgram(SkewedProgram):
    """The same, with experts distributed over `context` and `tensor`, too."""

    def draw_meshes(self, draw, most, count=drawn_models.MESHES):
        drawn = super().draw_meshes(draw, most, count)
        return [f"{mesh},expert_context=1,expert_tensor=1" for mesh in drawn][:3]

    def exchanges(self, sizes):
        ranks = sizes["expert"] * sizes["context"] * sizes["tensor"]
        return (ranks > sizes["expert"] and self.experts % ranks == 0
                and sizes["data"] * sizes["expert"] <= self.shape[0])
