// Composites: ops that passes handle as a whole. The decomposition of each into
// primitives is its definition.
#ifndef TESSERA_GRAPH_COMPOSITE_OPS
#define TESSERA_GRAPH_COMPOSITE_OPS

include "dialects/graph/GraphOpBase.td"

class Graph_CompositeOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([Graph_DecomposableOp, Graph_DifferentiableOp,
    Graph_CostedDefault, Graph_ShardableOp], traits)>;

def Graph_SoftmaxOp : Graph_CompositeOp<"softmax", [SameOperandsAndResultType]> {
  let summary = "softmax along the last dimension; a row of -inf gives zeros";
  let arguments = (ins Graph_FloatTensor:$input);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Graph_LayerNormOp : Graph_CompositeOp<"layer_norm", [AllTypesMatch<["input", "result"]>]> {
  let summary = "(x - mean) / sqrt(var + eps) × weight + bias along the last dimension";
  let description = [{Statistics in f32; the variance is the biased one.}];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$weight,
                       Optional<Graph_FloatTensor>:$bias, F64Attr:$eps);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? `eps` $eps attr-dict `:` type($input) `,` type($weight) (`,`
    type($bias)^)?
  }];
  let hasVerifier = 1;
}

def Graph_RmsNormOp : Graph_CompositeOp<"rms_norm", [AllTypesMatch<["input", "result"]>]> {
  let summary = "x / sqrt(mean(x²) + eps) × (offset + weight) along the last dimension";
  let description = [{
    Statistics, and the sum with `offset`, are in f32: weights stored as their difference from 1 are
    small, and bf16 has eight bits of precision.
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$weight, F64Attr:$eps,
                       DefaultValuedAttr<F64Attr, "0.0">:$offset);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `,` $weight `eps` $eps attr-dict `:` type($input) `,` type($weight)";
  let hasVerifier = 1;
}

def Graph_RopeOp : Graph_CompositeOp<"rope", [AllTypesMatch<["input", "result"]>]> {
  let summary = "rotary position embedding in the half-split form";
  let description = [{
    `input` is [batch, tokens, heads, head_dim]; position t is the token's index in its sequence, or
    given by `positions` [batch, tokens]. With h = head_dim/2 and angle a(t,i) = t × frequencies[i]:
    out[i] = x[i] cos a - x[i+h] sin a, out[i+h] = x[i+h] cos a + x[i] sin a, both × `scaling`
    (attention factor of yarn and longrope, 1 otherwise). `inverse` rotates by -a: the gradient of
    the op without it. Frequencies are an attribute, so that one op covers every rope type.
  }];
  let arguments = (ins Graph_FloatTensor:$input, Optional<Graph_IntTensor>:$positions,
                       DenseF64ArrayAttr:$frequencies,
                       DefaultValuedAttr<F64Attr, "1.0">:$scaling,
                       UnitAttr:$inverse);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input (`at` $positions^)? attr-dict `:` type($input) (`,` type($positions)^)?
  }];
  let hasVerifier = 1;
}

def Graph_DropoutOp : Graph_CompositeOp<"dropout", [AllTypesMatch<["input", "result"]>]> {
  let summary = "zeroes elements with probability `rate` and scales the rest by 1/(1-rate); the "
                "Philox mask is never stored";
  let description = [{
    An element is kept if `graph.random uniform` of the same stream, seed, step, offset and shape is
    >= `rate`. `offset` counts entries of the first dimension.
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_ScalarInt:$seed, Graph_ScalarInt:$step,
                       Optional<Graph_ScalarInt>:$offset, F64Attr:$rate, I64Attr:$stream);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $input `rate` $rate `stream` $stream `seed` $seed `step` $step (`offset` $offset^)? attr-dict
    `:` type($input) `,` type($seed) `,` type($step) (`,` type($offset)^)?
  }];
  let hasVerifier = 1;
}

def Graph_AttentionOp : Graph_Op<"attention", [AttrSizedOperandSegments, Graph_DecomposableOp,
    Graph_DifferentiableOp, DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_FusableOp,
    Graph_ShardableOp, Graph_InfersShapes<"op.getQuery().getType(), lseType(op.getQuery())">]> {
  let summary = "softmax(scale × q kᵀ + mask) v, with its log-sum-exp";
  let description = [{
    `query` [batch, tokens, heads, head_dim]; `key`, `value` [batch, keys, kv_heads, head_dim],
    heads a multiple of kv_heads (GQA; query head h reads kv head h / (heads / kv_heads)). Query t
    has position p = t, or `start` + t, among the keys; `start` may be negative. Key s is visible if
    s <= p when `causal`, p - s < `window` when given, and s >= `first`[b, t] when given. `first`
    [batch, tokens] keeps packed documents apart: it is the first key of the query's document, so it
    must not decrease along a row. With `last` [batch, tokens], which needs `causal`, key s is also
    visible if p < s <= last[b, t]: the tokens of a prompt see each other (prefix-LM; Raffel et al.
    2019, 1910.10683, section 3.2.1). The maximum of p and last[b, t] must not decrease along a row.
    `sinks` [heads] are logits that each query has in addition, of a key whose value is zero
    (gpt-oss; Xiao et al. 2023, 2309.17453): the softmax divides by exp(sink) more, and `lse` counts
    it. The numbers of keys and tokens are equal unless `start` is given: `partition-to-local`
    creates it for queries that are a shard of a sequence (passes/sharding); `first` and `last` then
    count from the first key, too, and may be outside of the keys.
    With `cap`, a scaled score x is cap × tanh(x / cap) (Gemma 2, 2408.00118, section 2). A query
    without visible keys gives zeros. `lse` [batch, heads, tokens] f32 (f64 in f64) is the natural
    log of the sum of exponentials of scaled scores, saved for the backward pass. Without visible
    keys it is so far below all others that exp(lse - another) is zero.
  }];
  let arguments = (ins Graph_FloatTensor:$query, Graph_FloatTensor:$key, Graph_FloatTensor:$value,
                       Optional<0DTensorOf<[I32]>>:$start,
                       Optional<StaticShapeTensorOf<[I32]>>:$first,
                       Optional<StaticShapeTensorOf<[I32]>>:$last,
                       Optional<1DTensorOf<[F32, F64]>>:$sinks,
                       F64Attr:$scale, UnitAttr:$causal, OptionalAttr<I64Attr>:$window,
                       OptionalAttr<F64Attr>:$cap);
  let results = (outs Graph_FloatTensor:$result, StaticShapeTensorOf<[Graph_Statistic]>:$lse);
  let assemblyFormat = [{
    $query `,` $key `,` $value (`start` $start^)? (`first` $first^ `:` type($first))?
    (`last` $last^ `:` type($last))? (`sinks` $sinks^ `:` type($sinks))? `scale` $scale attr-dict
    `:` type($query) `,` type($key) `,` type($value) (`,` type($start)^)? `->` type($result)
    `,` type($lse)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::attention;
    }
  }];
}

def Graph_AttentionGradOp : Graph_Op<"attention_grad", [AttrSizedOperandSegments,
    Graph_DecomposableOp, Graph_DifferentiableOp,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_FusableOp, Graph_ShardableOp,
    AllTypesMatch<["query", "dQuery"]>, AllTypesMatch<["key", "dKey"]>,
    AllTypesMatch<["value", "dValue"]>]> {
  let summary = "gradients of attention for query, key and value";
  let description = [{
    Recomputes the probabilities from `lse` (Dao et al. 2022); `output` and its cotangent give the
    row sums of dP ∘ P. Created by autodiff, never by a user. `output` and `lse` may be those of
    attention over more keys, of which these are a subset: the result is then the contribution of
    these keys to the gradients.
  }];
  let arguments = (ins Graph_FloatTensor:$query, Graph_FloatTensor:$key, Graph_FloatTensor:$value,
                       Graph_FloatTensor:$output, StaticShapeTensorOf<[Graph_Statistic]>:$lse,
                       Graph_FloatTensor:$cotangent,
                       Optional<0DTensorOf<[I32]>>:$start,
                       Optional<StaticShapeTensorOf<[I32]>>:$first,
                       Optional<StaticShapeTensorOf<[I32]>>:$last,
                       F64Attr:$scale, UnitAttr:$causal, OptionalAttr<I64Attr>:$window,
                       OptionalAttr<F64Attr>:$cap);
  let results = (outs Graph_FloatTensor:$dQuery, Graph_FloatTensor:$dKey,
                      Graph_FloatTensor:$dValue);
  let assemblyFormat = [{
    $query `,` $key `,` $value `,` $output `,` $lse `,` $cotangent (`start` $start^)?
    (`first` $first^ `:` type($first))? (`last` $last^ `:` type($last))? `scale` $scale attr-dict
    `:` type($query) `,` type($key) `,` type($value) `,` type($output) `,` type($lse)
    `,` type($cotangent) (`,` type($start)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::attention_grad;
    }
  }];
}

/// One loss, or one for each target.
def Graph_Losses : TensorRankOf<[Graph_Statistic], [0, 1, 2]>;

def Graph_LinearCrossEntropyOp : Graph_CompositeOp<"linear_cross_entropy"> {
  let summary = "-log softmax(x wᵀ)[target] of each token or summed: the head and its loss";
  let description = [{
    `input` [tokens, width], `weight` [vocab, width], `targets` [tokens]; a target equal to `ignore`
    (-100 by default) contributes nothing. A loss without dimensions is a *sum* in f32 (f64 in f64);
    the step program divides by the global count of unmasked tokens. A loss [tokens] is that of
    each token (PyTorch's `reduction="none"`). With several targets a token, `targets` [tokens, n],
    the loss is that sum or [tokens, n]: what distillation weighs by a teacher's probabilities.
    With `cap`, a logit x is cap × tanh(x / cap), as in `attention`. All logits are never
    materialized at once.
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$weight,
                       Graph_IntTensor:$targets,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore, OptionalAttr<F64Attr>:$cap);
  let results = (outs Graph_Losses:$loss);
  let assemblyFormat = [{
    $input `,` $weight `,` $targets attr-dict `:` type($input) `,` type($weight) `,` type($targets)
    `->` type($loss)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{ int64_t getFlops(); }];
}

def Graph_LinearCrossEntropyGradOp : Graph_Op<"linear_cross_entropy_grad", [Graph_DecomposableOp,
    Graph_DifferentiableOp, Graph_CostedDefault, Graph_ShardableOp,
    Graph_InfersShapes<"::mlir::RankedTensorType::get({}, statisticsType(op.getInput())), "
                       "op.getInput().getType(), op.getWeight().getType()">]> {
  let summary = "loss and gradients of linear_cross_entropy in one pass";
  let description = [{
    `dInput` and `dWeight` are the gradients of cotangent × loss; the cotangent is one number or one
    for each target. `loss` is the sum. Created by autodiff, for a summed loss instead of the
    forward op, and expanded by `expand-linear-cross-entropy` into a loop over chunks of tokens.
    `dWeight` may have a type of more bits than `weight` (f32 gradients of bf16 weights).
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$weight,
                       Graph_IntTensor:$targets,
                       Graph_Losses:$cotangent,
                       DefaultValuedAttr<I64Attr, "-100">:$ignore,
                       OptionalAttr<F64Attr>:$cap);
  let results = (outs 0DTensorOf<[Graph_Statistic]>:$loss, Graph_FloatTensor:$dInput,
                      Graph_FloatTensor:$dWeight);
  let assemblyFormat = [{
    $input `,` $weight `,` $targets `,` $cotangent attr-dict `:` functional-type(operands, results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{ int64_t getFlops(); }];
}

#endif
