"""Small models, recipes and meshes, drawn at random: sizes that axes do not
divide are as likely as those that they do."""
import json
import random

# Of one model: most of their kernels are the same, and compiled once.
MESHES = 5


def gpt2(draw):
    heads, width = draw.choice([2, 3, 4, 5]), draw.choice([4, 8, 12])
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "vocab_size": draw.choice([400, 403, 417, 432]), "n_positions": 32,
        "n_embd": heads * width, "n_head": heads,
        "n_layer": draw.choice([1, 2, 3, 4]), "n_inner": draw.choice([None, 20, 33]),
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.05, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "resid_pdrop": 0.0, "tie_word_embeddings": draw.choice([True, False])}


def llama(draw):
    shared, kv = draw.choice([1, 2]), draw.choice([2, 3, 4])
    width = draw.choice([4, 8])
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": draw.choice([400, 407, 426]),
        "max_position_embeddings": 32, "hidden_size": kv * shared * width,
        "num_attention_heads": kv * shared, "num_key_value_heads": kv,
        "intermediate_size": draw.choice([24, 35, 48]),
        "num_hidden_layers": draw.choice([1, 2, 3, 4]), "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "initializer_range": 0.05,
        "tie_word_embeddings": draw.choice([True, False])}


def mistral(draw):
    return llama(draw) | {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral",
        "sliding_window": draw.choice([3, 7])}


def experts(draw):
    """Mixtral, or Qwen2-MoE with an expert for all tokens."""
    shared, kv, width = draw.choice([1, 2]), draw.choice([2, 3]), 4
    config = {
        "vocab_size": draw.choice([400, 407]), "hidden_act": "silu",
        "max_position_embeddings": 32, "hidden_size": kv * shared * width,
        "num_attention_heads": kv * shared, "num_key_value_heads": kv,
        "intermediate_size": draw.choice([24, 35]),
        "num_hidden_layers": draw.choice([1, 2]),
        "rope_theta": 10000.0, "initializer_range": 0.05,
        "num_experts_per_tok": draw.choice([1, 2]),
        "router_aux_loss_coef": 0.01, "output_router_logits": False,
        "tie_word_embeddings": draw.choice([True, False])}
    if draw.choice([True, False]):
        return config | {
            "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
            "rms_norm_eps": 1e-5, "sliding_window": None,
            "num_local_experts": draw.choice([4, 5])}
    return config | {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe",
        "rms_norm_eps": 1e-6, "use_sliding_window": False,
        "num_experts": draw.choice([4, 6]), "norm_topk_prob": True,
        "moe_intermediate_size": draw.choice([12, 17]),
        "shared_expert_intermediate_size": draw.choice([12, 20]),
        "decoder_sparse_step": 1, "mlp_only_layers": []}


# What other members of Llama's family have that it has not: norms of all heads
# and after sub-layers; parallel sub-layers, rotated neighbours and layers that
# are not rotated; matrices that hold gate and up; latent attention. GPT-NeoX is not among them:
# on a tensor axis its train_step and eval_step divide sequences differently,
# which a run refuses.
LATENT = {"kv_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
          "num_local_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
          "moe_intermediate_size": 20}
MEMBERS = {
    "olmo3": ("Olmo3ForCausalLM", {"sliding_window": 5}),
    "olmoe": ("OlmoeForCausalLM", {"num_experts": 4, "num_experts_per_tok": 2,
                                   "norm_topk_prob": False}),
    "gpt_oss": ("GptOssForCausalLM", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
        "attention_bias": True, "rope_scaling": None}),
    "cohere2": ("Cohere2ForCausalLM", {"sliding_window": 5, "logit_scale": 0.7}),
    "glm4": ("Glm4ForCausalLM", {"partial_rotary_factor": 0.5,
                                 "attention_bias": True}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": 5,
                                             "hidden_act": "gelu_pytorch_tanh"}),
    "granite": ("GraniteForCausalLM", {"embedding_multiplier": 3.0,
                                       "residual_multiplier": 0.4,
                                       "attention_multiplier": 0.3,
                                       "logits_scaling": 1.5}),
    "smollm3": ("SmolLM3ForCausalLM", {"no_rope_layer_interval": 2}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT | {
        "q_lora_rank": 10, "n_group": 2, "topk_group": 1, "v_head_dim": 6}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT | {
        "q_lora_rank": None, "v_head_dim": 12}),
}


def member(draw, kind):
    architecture, own = MEMBERS[kind]
    config = llama(draw) | {"architectures": [architecture], "model_type": kind} | own
    if "kv_lora_rank" in config:
        config["num_key_value_heads"] = config["num_attention_heads"]
        config["first_k_dense_replace"] = min(1, config["num_hidden_layers"] - 1)
    else:
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if kind in ("cohere2", "starcoder2"):
        del config["rms_norm_eps"]
    return config


class Case:
    """A model, how it is trained, and the meshes on which it is."""

    def __init__(self, seed, most):
        draw = random.Random(seed)
        self.seed, self.exact = seed, False
        self.config = draw.choice([gpt2, llama, mistral, experts])(draw)
        self.settings = {
            "batch.micro": draw.choice([2, 3, 4, 5, 8]),
            "batch.accumulate": draw.choice([1, 2, 3, 4]),
            "batch.sequence": draw.choice([8, 12, 16]),
            "recompute": draw.choice(["none", "none", "full", "selective"]),
            "precision.compute": draw.choice(["fp64", "fp32", "bf16"]),
            "optimizer.clip": draw.choice([0.0, 1.0])}
        if "num_experts_per_tok" in self.config:
            # Rounding to bf16 sends tokens to other experts. In fp32 whom
            # capacity leaves out follows from places, not from what rounding
            # makes of tokens that are almost equally probable.
            compute = draw.choice(["fp64", "fp64", "fp32"])
            drops = ["position"] if compute == "fp32" else ["probability", "position"]
            self.settings |= {
                "precision.compute": compute, "moe.drop": draw.choice(drops),
                "moe.capacity": draw.choice([0.0, 1.0, 1.5]),
                "moe.balance": draw.choice(["sequence", "global"])}
        self.meshes = self.draw_meshes(draw, most)

    def arguments(self, folder, mesh):
        """What `tessera compile` is given; files go to the folder."""
        (folder / "config.json").write_text(json.dumps(self.config))
        settings = self.settings | {"moe.dispatch": self.dispatch(mesh)}
        if settings["moe.dispatch"] == "exchange":
            # The default, and so little room that there are many rounds.
            settings["moe.buffer"] = (1.5, 0.5, 0.1)[self.seed % 3]
        return [folder, *(word for key, value in settings.items()
                          for word in ("--set", f"{key}={value}"))]

    def largest(self):
        """Devices that an axis may have at most: all get a part of something."""
        heads = self.config.get("num_key_value_heads", self.config.get("n_head"))
        layers = self.config.get("num_hidden_layers", self.config.get("n_layer"))
        own = self.config.get("num_local_experts", self.config.get("num_experts", 1))
        staged = self.settings["batch.accumulate"] > 1
        return {"data": self.settings["batch.micro"], "expert": own, "context": 4,
                "tensor": heads, "pipe": layers if staged else 1}

    def draw_pipe(self, draw, pipe, layers):
        """Axis and schedule; none for one stage."""
        if pipe == 1:
            return ""
        schedules = ["1f1b", "gpipe", "zb-h1"]
        if 2 * pipe <= layers:
            schedules.append("interleaved")
        schedule = draw.choice(schedules)
        # In every other model, so that what is drawn after it stays the same.
        fits = self.settings["batch.accumulate"] >= 2 * pipe - 1
        if schedule == "interleaved" and fits and self.seed % 4 == 0:
            schedule = "dualpipev"
        return f"pipe={pipe},schedule={schedule},"

    def draw_meshes(self, draw, most, count=MESHES):
        limits, meshes = self.largest(), []
        for _ in range(200):
            data = draw.randint(1, min(limits["data"], most))
            expert = draw.randint(1, min(limits["expert"], most))
            context = draw.choice([1, 1, *range(2, limits["context"] + 1)])
            tensor = draw.randint(1, min(limits["tensor"], most))
            zero = draw.choice([0, 0, 1, 2, 3]) if data * expert * context > 1 else 0
            pipe = draw.randint(1, min(limits["pipe"], most))
            mesh = (self.draw_pipe(draw, pipe, limits["pipe"])
                    + f"data={data},expert={expert},context={context},tensor={tensor}"
                    + (f",zero={zero}" if zero else ""))
            ranks = pipe * data * expert * context * tensor
            if 1 < ranks <= most and mesh not in meshes:
                meshes.append(mesh)
            if len(meshes) == count:
                break
        return meshes

    def dispatch(self, mesh):
        """How rows reach experts: by the exchange that no estimate would choose
        for so few of them, where there can be one."""
        sizes = dict(part.split("=") for part in mesh.split(",")) if mesh else {}
        expert = ranks = int(sizes.get("expert", 1))
        own = self.config.get("num_local_experts", self.config.get("num_experts", 1))
        needed = int(sizes.get("replicate", 1)) * int(sizes.get("data", 1)) * expert
        capacity = self.settings.get("moe.capacity") # which is of whole sequences
        if "expert_tensor" in sizes:
            ranks *= int(sizes["tensor"])
            needed *= int(sizes["tensor"]) if capacity else 1
        if "expert_context" in sizes:
            ranks *= int(sizes["context"]) if not capacity else own + 1
        fits = needed <= self.settings["batch.micro"]
        return "exchange" if ranks > 1 and own % ranks == 0 and fits else "auto"

    def kind(self):
        """What the comparison is of, for people who count."""
        drop = self.settings.get("moe.drop") == "probability"
        drops = drop and self.settings["moe.capacity"] > 0
        compute = self.settings["precision.compute"]
        return compute + (" dropping by probability" if drops else "")

    def __str__(self):
        kind = self.config["model_type"]
        return f"seed {self.seed}: {kind} {self.settings}"


class CountedCase(Case):
    """Experts whose load is compared over a whole step, on pipelines: a loop
    over the microbatches counts before the step's own."""

    def __init__(self, seed, most):
        draw = random.Random(seed)
        self.seed, self.exact = seed, False
        self.config = experts(draw) | {"num_hidden_layers": draw.choice([2, 3, 4])}
        self.settings = {
            "batch.micro": draw.choice([2, 3, 4]),
            "batch.accumulate": draw.choice([2, 3]), "batch.sequence": 8,
            "recompute": draw.choice(["none", "full", "selective"]),
            "precision.compute": "fp64", "optimizer.clip": draw.choice([0.0, 1.0]),
            "moe.drop": draw.choice(["probability", "position"]),
            "moe.capacity": draw.choice([0.0, 1.0, 1.5]),
            "moe.balance": "global", "moe.balance_weight": 0.1}
        staged = [mesh for mesh in self.draw_meshes(draw, most, count=40)
                  if mesh.startswith("pipe=")]
        self.meshes = staged[:2]


class MemberCase(Case):
    """A member of Llama's family on meshes that divide heads or layers."""

    def __init__(self, seed, most):
        draw = random.Random(seed)
        self.seed, self.exact = seed, False
        self.config = member(draw, sorted(MEMBERS)[seed % len(MEMBERS)])
        self.settings = {
            "batch.micro": draw.choice([2, 3, 4]),
            "batch.accumulate": draw.choice([2, 3]), "batch.sequence": 12,
            "recompute": draw.choice(["none", "full", "selective"]),
            "precision.compute": "fp64", "optimizer.clip": 1.0}
        self.meshes = [mesh for mesh in self.draw_meshes(draw, most, count=40)
                       if mesh.startswith("pipe=") or "tensor=1" not in mesh][:2]


class Parted:
    """Meshes over `tensor` whose gathers and scatters go in parts of products;
    those of uneven shares of tokens stay whole."""

    def draw_meshes(self, draw, most, count=MESHES):
        drawn = super().draw_meshes(draw, most, count=40)
        return [f"{mesh},collective_matmul=on" for mesh in drawn if "tensor=1" not in mesh][:3]


class PartedCase(Parted, Case):
    """A model on them."""


class Replicated:
    """Meshes of replicas, each of which shards state over its own ranks."""

    def draw_meshes(self, draw, most, count=MESHES):
        found = []
        for mesh in super().draw_meshes(draw, most // 2, count=40):
            parts = dict(part.split("=") for part in mesh.split(","))
            ranks = 1
            for axis in ("pipe", "data", "expert", "context", "tensor"):
                ranks *= int(parts.get(axis, 1))
            sharers = ranks // int(parts.get("pipe", 1)) // int(parts["tensor"])
            if sharers == 1:
                continue
            parts["replicate"] = draw.randint(2, most // ranks)
            parts["zero"] = draw.choice([1, 2, 3])
            mesh = ",".join(f"{key}={value}" for key, value in parts.items())
            if mesh not in found:
                found.append(mesh)
        return found[:count]


class ReplicatedCase(Replicated, Case):
    """A model on them."""


class Folded:
    """Meshes over whose `tensor` and `context` experts are distributed, as over
    `expert`."""

    def draw_meshes(self, draw, most, count=MESHES):
        found, own = [], self.largest()["expert"]
        for mesh in super().draw_meshes(draw, most, count=60):
            sizes = dict(part.split("=") for part in mesh.split(","))
            tensor = int(sizes["tensor"])
            ranks, context = int(sizes["expert"]) * tensor, int(sizes["context"])
            if context > 1 and ranks * context <= own:
                mesh, ranks = f"{mesh},expert_context=1", ranks * context
            if "expert_context" in mesh or tensor > 1 and ranks <= own:
                found.append(f"{mesh},expert_tensor=1")
        return found[:3]


class FoldedCase(Folded, Case):
    """A model of experts on them."""

    def __init__(self, seed, most):
        while True: # any other has no experts
            super().__init__(seed, most)
            if "num_experts_per_tok" in self.config:
                break
            seed += 1000
