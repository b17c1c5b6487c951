// Contractions, reductions, gather and scatter, random numbers.
#ifndef TESSERA_GRAPH_MATMUL_OPS
#define TESSERA_GRAPH_MATMUL_OPS

include "dialects/graph/GraphOpBase.td"

def Graph_EinsumOp : Graph_Op<"einsum", [Graph_DifferentiableOp,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_FusableOp, Graph_ShardableOp,
    Graph_InfersShapes<"einsumType(op.getEquation(), op.getLhs(), op.getRhs())">]> {
  let summary = "contraction of two tensors, written as an einsum equation";
  let description = [{
    `equation` is `lhs,rhs->out` with one lower-case letter per dimension. A letter in both inputs
    and the output is a batch dimension; one in both inputs only is summed. No letter repeats within
    a term, and none occurs in one input only. Both inputs have the same element type. Accumulates
    in f32 (f64 for f64) and rounds once to the result's element type, which may have more bits than
    the inputs'.

    ```mlir
    %y = graph.einsum "btk,kn->btn" %x, %w : (tensor<4x64x768xf32>, tensor<768x3072xf32>)
      -> tensor<4x64x3072xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$lhs, Graph_FloatTensor:$rhs, StrAttr:$equation);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$equation $lhs `,` $rhs attr-dict `:` functional-type(operands, $result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::contraction;
    }
  }];
}

def Graph_ReduceOp : Graph_Op<"reduce", [Graph_DifferentiableOp, Graph_CostedDefault,
    Graph_FusableOp, Graph_ShardableOp,
    Graph_InfersTypes<"reducedType(op.getInput(), op.getDims())">]> {
  let summary = "sum, max or min over `dims`, which are removed";
  let description = [{
    `dims` is strictly increasing and not empty. Sums of f32, bf16 and f16 accumulate in f32. The
    gradient of a maximum (minimum) is divided equally among the elements that equal it.
  }];
  let arguments = (ins Graph_NumberTensor:$input, Graph_ReduceKindAttr:$kind,
                       DenseI64ArrayAttr:$dims);
  let results = (outs Graph_NumberTensor:$result);
  let assemblyFormat = "$input `` $kind `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind();
    int64_t getFlops() { return getInput().getType().getNumElements(); }
  }];
}

def Graph_EmbeddingOp : Graph_Op<"embedding", [Graph_DifferentiableOp, Graph_CostedDefault,
    Graph_FusableOp, Graph_ShardableOp,
    Graph_InfersTypes<"rowsType(op.getTable(), op.getIds())">]> {
  let summary = "gathers rows `ids` of `table`";
  let description = [{
    `table` is [rows, width], `ids` any shape of integers in [0, rows); the result has the shape of
    `ids` with `width` appended. The data loader checks the range.
  }];
  let arguments = (ins Graph_FloatTensor:$table, Graph_IntTensor:$ids);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$table `,` $ids attr-dict `:` functional-type(operands, $result)";
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::gather;
    }
    int64_t getFlops() { return 0; }
  }];
}

def Graph_ScatterAddOp : Graph_Op<"scatter_add", [AllTypesMatch<["base", "result"]>,
    Graph_DifferentiableOp, Graph_CostedDefault, Graph_FusableOp, Graph_RowScatter,
    Graph_ShardableOp]> {
  let summary = "adds rows of `updates` to rows `ids` of `base`";
  let description = [{
    The gradient of `embedding`. Rows are added in the order of `ids`, so the result does not depend
    on how the work is divided. Accumulates in f32; `base` may have a type of more bits than
    `updates` (f32 gradients of bf16 tables).
  }];
  let arguments = (ins Graph_FloatTensor:$base, Graph_IntTensor:$ids, Graph_FloatTensor:$updates);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $updates `at` $ids `onto` $base attr-dict `:` type($updates) `,` type($ids) `,` type($base)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::scatter;
    }
    bool adds() { return true; }
  }];
}

def Graph_RandomOp : Graph_Op<"random", [Graph_DifferentiableOp, Graph_FusableOp,
    Graph_ShardableOp]> {
  let summary = "counter-based random numbers, a pure function of seed, step and element index";
  let description = [{
    Philox4x32-10 (Salmon et al. 2011), all words unsigned 32 bits, with
      key     = (lo(seed) xor (hi(seed) × 0x9E3779B9 mod 2^32), stream)
      counter = (lo(index / 4), hi(index / 4), lo(step), hi(step)),
    where lo and hi are the halves of the value as 64 bits (an i32 operand is
    sign-extended) and
      index = row-major index of the element + offset × (elements of one entry of
              the first dimension).
    Word (index mod 4) of the four output words w0..w3 belongs to the element.
    `uniform` is (word >> 8) × 2^-24. `normal` pairs (u, v) = (w0, w1) and (w2, w3) by
    Box–Muller, r = sqrt(-2 ln(((u >> 8) + 1) × 2^-24)), a = 2π (v >> 8) × 2^-24: the element with
    even index gets r cos a, the odd one r sin a.

    The numbers are the same under any sharding, microbatching or recomputation: `offset` (0 if
    absent) is the index of the result's first entry in the global batch, along the first dimension.
    `stream` distinguishes the uses of a seed; it fits 32 bits.
  }];
  let arguments = (ins Graph_ScalarInt:$seed, Graph_ScalarInt:$step,
                       Optional<Graph_ScalarInt>:$offset,
                       I64Attr:$stream, Graph_RandomKindAttr:$kind);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = [{
    `` $kind `stream` $stream `seed` $seed `step` $step (`offset` $offset^)? attr-dict `:`
    type($seed) `,` type($step) (`,` type($offset)^)? `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
  }];
}

#endif
