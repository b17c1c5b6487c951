#ifndef TESSERA_FUSION_PASSES
#define TESSERA_FUSION_PASSES

include "mlir/Pass/PassBase.td"

def ExpandLinearCrossEntropy : Pass<"expand-linear-cross-entropy", "::mlir::func::FuncOp"> {
  let summary = "computes the head and its loss in chunks of tokens";
  let description = [{
    `graph.linear_cross_entropy` and its gradient become a `graph.loop` over chunks of tokens,
    small enough that the logits of a chunk take at most `chunk-bytes`. The default is 64 MiB, and
    with a gradient the size of the weight's f32 gradient, which every chunk reads and writes. The
    loss and the gradient of the weight accumulate over the chunks in f32, the gradient of the
    input is written chunk by chunk. If one chunk holds all tokens the op stays, and
    `decompose-composites` replaces it by primitives.

    Chunks run over tokens rather than over the vocabulary: each token's softmax is then
    complete within its chunk and nothing is computed twice, whereas chunks of the vocabulary
    need the logits once for the normalizer and again for the gradient, a third more
    multiplications in the head.

    Before:
    ```mlir
    %loss, %dx, %dw = graph.linear_cross_entropy_grad %x, %w, %t, %ct : ...
    ```
    After:
    ```mlir
    %xs = graph.reshape %x : tensor<1024x64xf32> -> tensor<4x256x64xf32>
    %r:3 = graph.loop 4 (%i, %sum = %zero, %dxs = %zeros, %dwSum = %zeros2) : (...) {
      %xi = graph.dynamic_slice %xs[%i] : ...
      %l, %dxi, %dwi = graph.linear_cross_entropy_grad %xi, %w, %ti, %ct : ...
      ...
    }
    ```
    Afterwards the logits of each linear_cross_entropy are at most that large, unless those of a
    single token are larger.
  }];
  let options = [Option<"chunkBytes", "chunk-bytes", "int64_t", "0",
    "largest size of one chunk's logits; 0: the default">];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def DecomposeComposites : Pass<"decompose-composites", "::mlir::func::FuncOp"> {
  let summary = "replaces composites by the primitives that define them";
  let description = [{
    Every op with the interface `Decomposable` except attention and its gradient, which have
    skeletons of their own. The primitives carry the attribute `origin` with the composite's
    name: kernels are named by it.

    Before:
    ```mlir
    %y = graph.rms_norm %x, %w eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
    ```
    After:
    ```mlir
    %0 = graph.mul %x, %x {origin = "rms_norm"} : tensor<4x8xf32>
    %1 = graph.reduce %0 sum dims [1] {origin = "rms_norm"} : tensor<4x8xf32> -> tensor<4xf32>
    ...
    ```
    Afterwards no composite but attention remains.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def NormalizeReductions : Pass<"normalize-reductions", "::mlir::func::FuncOp"> {
  let summary = "rewrites reductions to the forms of the skeletons and removes empty tensors";
  let description = [{
    A reduction over all dimensions stays; one over the last few becomes one over a single last
    dimension of a reshaped tensor; one over the last and others is done in two steps, with f32
    between them if the tensor has fewer bits. A scatter to such a tensor adds in f32, too. Ops
    whose results have no elements become constants; contractions and sums over empty dimensions
    become zeros.

    Before:
    ```mlir
    %s = graph.reduce %x sum dims [0, 2] : tensor<2x3x4xf32> -> tensor<3xf32>
    ```
    After:
    ```mlir
    %r = graph.reduce %x sum dims [2] : tensor<2x3x4xf32> -> tensor<2x3xf32>
    %s = graph.reduce %r sum dims [0] : tensor<2x3xf32> -> tensor<3xf32>
    ```
    Afterwards each reduction is over all dimensions, over the last one alone or over none
    but leading ones, and no op computes with empty tensors.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def InlineBlocks : Pass<"inline-blocks", "::mlir::ModuleOp"> {
  let summary = "replaces calls of block functions by their bodies";
  let description = [{
    Every function that is called is inlined into its callers, in call order, and erased. Each op
    keeps its own location under that of the call, and gets the call's `graph.layer` and `dist.pair`
    (unless it is in a loop of the body). So a profile still says which layer it belongs to.

    Before:
    ```mlir
    %y = call @layer(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    After: the body of `@layer` on `%x` and `%w`.

    Afterwards the module has no calls and no private functions. Clusters and launches keep the
    layer: that of the last op in a cluster that has one.
  }];
}

def InterleavePairs : Pass<"interleave-pairs", "::mlir::func::FuncOp"> {
  let summary = "interleaves the forward of one microbatch with the backward of another";
  let description = [{
    A pipeline schedule may pair the forward of one microbatch with the backward of another
    (OVERLAP). `split-stages` emits one after the other, and marks both by `dist.pair`. This pass
    orders their collectives by turns, in proportion to their numbers. Between the start of a
    collective and the ops that need it are ops of the other half, up to its next collective.
    Operands come first, and each half keeps the order of its own collectives. The order of
    collectives depends on their numbers alone, so ranks of a group agree on it. A loop over further
    rounds of an exchange (a `counted` loop) counts with the exchange before it.

    Before:
    ```mlir
    %a = dist.all_to_all %x ... {dist.pair = array<i64: 0, 0>}
    %b = graph.exp %a {dist.pair = array<i64: 0, 0>} : tensor<8xf32>
    %c = graph.exp %g {dist.pair = array<i64: 0, 1>} : tensor<8xf32>
    %d = dist.all_to_all %c ... {dist.pair = array<i64: 0, 1>}
    ```
    After:
    ```mlir
    %a = dist.all_to_all %x ...
    %c = graph.exp %g : tensor<8xf32>
    %d = dist.all_to_all %c ...
    %b = graph.exp %a : tensor<8xf32>
    ```
    Afterwards no op has `dist.pair`.
  }];
}

def SinkAccumulators : Pass<"sink-accumulators", "::mlir::func::FuncOp"> {
  let summary = "starts sums from the value to which they are added later";
  let description = [{
    A sum that starts from zero in a loop (the chunks of a head) or a scatter, and is then added
    to an earlier value, starts from that value instead: a weight's gradient accumulates over
    chunks and microbatches in one buffer. The same holds for two contractions that are added
    first, such as the pieces of a collective matmul: `base + (a + b)` becomes `(base + a) + b`.

    Before:
    ```mlir
    %s = graph.loop 4 (%i, %acc = %zeros) : (tensor<64x8xf32>) { ... graph.add %acc, %t ... }
    %r = graph.add %base, %s : tensor<64x8xf32>
    ```
    After:
    ```mlir
    %r = graph.loop 4 (%i, %acc = %base) : (tensor<64x8xf32>) { ... graph.add %acc, %t ... }
    ```
    Afterwards no graph.add adds such a sum, used once, to an earlier value.
  }];
}

def AccumulateEarly : Pass<"accumulate-early", "::mlir::func::FuncOp"> {
  let summary = "adds large reduced gradients to their sums soon after they are reduced";
  let description = [{
    In a loop over microbatches sums are computed at the end of the body. A gradient that a
    collective reduced would be live until then, and with it those of all layers. A cluster whose
    results the loop only carries on, and whose last operand a collective makes, moves to some
    clusters after that collective. Small ones stay, because launches next to each other are merged
    later.

    Before:
    ```mlir
    %g = dist.reduce_scatter sum %d dim 0 over @mesh [#dist.axis_ref<"data">] : ...
    ...
    %s = graph.cluster elementwise "add"(%sum, %g) : ...
    graph.yield %s : ...
    ```
    After:
    ```mlir
    %g = dist.reduce_scatter sum %d dim 0 over @mesh [#dist.axis_ref<"data">] : ...
    (32 clusters)
    %s = graph.cluster elementwise "add"(%sum, %g) : ...
    ...
    graph.yield %s : ...
    ```
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "4 << 20", "Bytes of a result from which on it is moved">,
    Option<"distance", "distance", "int64_t", "32",
           "Clusters that run between the collective and the sum">];
}

def MaterializeInductionVariables
    : Pass<"materialize-induction-variables", "::mlir::func::FuncOp"> {
  let summary = "stores induction variables that kernels read";
  let description = [{
    The induction variable of a `graph.loop` is an index: it advances addresses and is not stored.
    If it is also used as a number (it selects the random numbers of a microbatch), it becomes an
    element of a table, since kernels read tensors.

    Before:
    ```mlir
    %r = graph.loop 2 (%i, %acc = %zero) : (tensor<i64>) {
      %n = graph.convert %i : tensor<i32> -> tensor<i64>
    ```
    After:
    ```mlir
    %numbers = graph.iota dim 0 : tensor<2xi32>
    %r = graph.loop 2 (%i, %acc = %zero) : (tensor<i64>) {
      %number = graph.dynamic_slice %numbers[%i] : tensor<2xi32>, tensor<i32> -> tensor<i32>
      %n = graph.convert %number : tensor<i32> -> tensor<i64>
    ```
    If the number of iterations is data (`counted`), it is a carried value instead, from 0 on:
    a GPU repeats one body then, whose addresses do not advance.

    Before:
    ```mlir
    %r:2 = graph.loop 2 (%i, %count = %n, %acc = %zero) : (tensor<i32>, tensor<i64>) {
      ...
      graph.yield %count, %next
    ```
    After:
    ```mlir
    %r:3 = graph.loop 2 (%i, %count = %n, %acc = %zero, %number = %first) : (...) {
      ...
      graph.yield %count, %next, %number + 1
    ```
    Afterwards induction variables are only used as the index of `dynamic_slice` and
    `dynamic_update`.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def HoistInputInvariants : Pass<"hoist-input-invariants", "::mlir::func::FuncOp"> {
  let summary = "hoists loop-invariant ops that depend on no input, and merges equal ones";
  let description = [{
    Loop-invariant code motion and common-subexpression elimination for ops whose operands are
    constants, the device's coordinates in the mesh ("mesh.offsets") or other such ops (the angles
    of rope): they move to the start of the function, out of all loops, and equal ones become one.
    Masks stay in place: comparing indices is cheaper than loading a mask. Recomputation is not
    undone, since recomputed values depend on inputs.

    Before: `graph.cos` of a table of angles in every layer.
    After: one `graph.cos` at the start.

    Afterwards no two ops that depend on no input are equal, and none but masks is in a loop.
  }];
}

def Fuse : Pass<"fuse", "::mlir::func::FuncOp"> {
  let summary = "groups ops into clusters, each of which becomes one kernel";
  let description = [{
    The rules are in FusionRules.h, the most profitable first. Views, splat constants, iota, random
    numbers and upcasts are repeated in each cluster that uses them; a contraction is never
    repeated; no cluster closes a cycle.

    Before:
    ```mlir
    %u = graph.einsum "mk,kn->mn" %x, %w : ...
    %b = graph.broadcast %bias dims [1] : tensor<16xf32> -> tensor<8x16xf32>
    %v = graph.add %u, %b : tensor<8x16xf32>
    %y = graph.gelu %v erf : tensor<8x16xf32>
    ```
    After:
    ```mlir
    %y = graph.cluster contraction "linear_add_gelu" (%x, %w, %bias) : (...) -> tensor<8x16xf32> {
      ...
    }
    ```
    Afterwards ops are in clusters, except loops, returns, dynamic slices and updates, constants,
    contiguous views, concatenations of rows and collectives. Collectives keep their order.
    With `explain`, remarks say of each tensor that one kernel stores for another why the two are
    not one kernel.
  }];
  let options = [Option<"explain", "explain", "bool", "false",
    "Remark why a tensor is stored between two kernels">];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect"];
}

def VerifyFused : Pass<"verify-fused", "::mlir::ModuleOp"> {
  let summary = "verifies that every op that computes is in a cluster";
  let description = [{
    A function after fusion holds graph.cluster, graph.loop, graph.yield, graph.constant,
    graph.reshape, a contiguous graph.slice, graph.dynamic_slice, graph.dynamic_update, a
    graph.concat of rows, collectives of dist, dist.pack and func.return, nothing else. A cluster of
    kind contraction holds one einsum; one of kind attention or attention_grad holds that op; the
    others hold neither.
  }];
}

#endif
