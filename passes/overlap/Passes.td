#ifndef TESSERA_OVERLAP_PASSES
#define TESSERA_OVERLAP_PASSES

include "mlir/Pass/PassBase.td"

def OrderCollectives : Pass<"order-collectives", "::mlir::ModuleOp"> {
  let summary = "decides in which order collectives start, and which are merged";
  let description = [{
    Sets `dist.start`, the position in the order of starts, on each collective of a block and on
    each loop that contains some.

    - A collective starts when its operand is computed: in the order in which gradients are
      computed, not in that of parameters.
    - A gather of parameters starts early enough to finish in time by estimate, with a margin as
      long as the gather. Tensors that are gathered and not yet used take no more memory than the
      largest size of gathered tensors that are in use at one time.
    - Exchanges (`permute`, `all_to_all`, `exchange_rows`) and loops keep their order.
    - Small collectives of one kind, over the same axes, with even shards get one number. Together
      they are large enough for the latency of their links, or an eighth of all bytes over the same
      links. Gathers of parameters start with the first of them, others with the last one, unless an
      op needs one of them before.

    Ranks must agree in all of that, and groups of devices with different local shapes have
    different programs. The driver therefore calls `orderCollectives` on all of them at once:
    dependences of any of them hold for all, the sizes are the largest of any, and the first one is
    priced. This pass does it for a module that has no `dist.start` yet.

    Before:
    ```mlir
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">]
        : tensor<64xf32> -> tensor<64xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">]
        : tensor<32xf32> -> tensor<32xf32>
    ```
    After:
    ```mlir
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64}
        : tensor<64xf32> -> tensor<64xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64}
        : tensor<32xf32> -> tensor<32xf32>
    ```
    Afterwards each collective has a number, and none needs the result of one with the same or a
    larger number.
  }];
}

def BucketCollectives : Pass<"bucket-collectives", "::mlir::func::FuncOp"> {
  let summary = "merges collectives that start together into one";
  let description = [{
    Collectives with one number (`dist.start`) become one of a `dist.pack` of their operands. Sums
    are the same bit for bit: they are taken element by element, in the order of members.

    Before: see after `order-collectives`. After:
    ```mlir
    %p = dist.pack(%x, %y) pieces 1 : (tensor<64xf32>, tensor<32xf32>) -> tensor<96xf32>
    %s = dist.all_reduce sum %p over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64}
        : tensor<96xf32> -> tensor<96xf32>
    %a, %b = dist.unpack %s pieces 1 : (tensor<96xf32>) -> (tensor<64xf32>, tensor<32xf32>)
    ```
    Afterwards no two collectives of a block have one number, and they are in the order of their
    numbers.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
}

def OverlapCollectives : Pass<"overlap-collectives", "::mlir::func::FuncOp"> {
  let summary = "starts collectives as early as possible and waits for them right before their use";
  let description = [{
    A list scheduler over one engine that computes and one for each set of axes. Collectives start
    in the order of `dist.start`. Computing ops keep their order, except that among the next few

    - one that can run goes before one that would wait for a collective;
    - the producer of a collective that is needed soon goes before ops that can overlap with it: the
      gradient of an input, which is all-reduced over `tensor`, before that of a weight.

    At most two collectives with buffers of their own are pending over the same axes: before another
    one starts, there is a wait for the one before the last. A permute, except over `pipe`, starts
    after ops that can run meanwhile instead.

    Views, packs and copies for collectives are placed right before their users.

    Before:
    ```mlir
    %w = graph.cluster contraction "dw" (%x, %g) : ...
    %d = graph.cluster contraction "dx" (%g, %weight) : ...
    %s = dist.all_reduce sum %d over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64}
        : tensor<8x4xf32> -> tensor<8x4xf32>
    %n = graph.cluster row "norm" (%s) : ...
    ```
    After:
    ```mlir
    %d = graph.cluster contraction "dx" (%g, %weight) : ...
    %t = dist.all_reduce sum %d over @mesh [#dist.axis_ref<"tensor">]
        : tensor<8x4xf32> -> !dist.pending<tensor<8x4xf32>>
    %w = graph.cluster contraction "dw" (%x, %g) : ...
    %s = dist.wait %t : <tensor<8x4xf32>> -> tensor<8x4xf32>
    %n = graph.cluster row "norm" (%s) : ...
    ```
    Afterwards no `dist.start` is left, and a collective is blocking only if no op can overlap with
    it.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
}

def VerifyOverlap : Pass<"verify-overlap", "::mlir::ModuleOp"> {
  let summary = "verifies that every started collective is waited for exactly once";
  let description = [{
    Every started collective has one use, a wait in its own block, and no `dist.start` is left.
  }];
}

#endif
