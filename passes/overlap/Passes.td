#ifndef TESSERA_SCHEDULE_PASSES
#define TESSERA_SCHEDULE_PASSES

include "mlir/Pass/PassBase.td"

def OrderCollectives : Pass<"order-collectives", "::mlir::ModuleOp"> {
  let summary = "decides in which order collectives start, and which travel together";
  let description = [{
    The attribute `dist.start` of a collective, and of a loop that holds some, is its number in its block.

    - A collective starts when what it takes is there: in the order in which gradients become ready, not in that of
      parameters.
    - A gather of parameters starts so early that it is done when it is needed, with as much time again, but what is
      gathered and not yet used takes no more than what the block has of gathered tensors in use at its fullest moment.
    - Exchanges (`permute`, `all_to_all`, `exchange_rows`) and loops keep the order in which they stand.
    - Small collectives of one kind, over the same axes, with even shares get one number. Together they are as large as is
      worth the latency of their links, or an eighth of all that goes the same way. Gathers of parameters start with the first of them, others with the last one, unless
      something needs one of them before.

    Ranks must agree in all of that, and groups of devices whose shares differ in shape have programs of their own. The
    driver therefore calls `orderCollectives` on all of them at once: what any of them requires holds for all, the sizes
    are the largest of any, and the first one is priced. This pass does it for a module that has no `dist.start` yet.

    Before:
    ```mlir
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<64xf32> -> tensor<64xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] : tensor<32xf32> -> tensor<32xf32>
    ```
    After:
    ```mlir
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<64xf32> -> tensor<64xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<32xf32> -> tensor<32xf32>
    ```
    Afterwards each collective has a number, and none needs the result of one with the same or a larger number.
  }];
}

def BucketCollectives : Pass<"bucket-collectives", "::mlir::func::FuncOp"> {
  let summary = "makes one collective of those that start together";
  let description = [{
    Collectives of one number (`dist.start`) become one of a `dist.pack` of their operands. Sums are the same bit for bit: they
    are taken element by element, in the order of members.

    Before: see after `order-collectives`. After:
    ```mlir
    %p = dist.pack(%x, %y) pieces 1 : (tensor<64xf32>, tensor<32xf32>) -> tensor<96xf32>
    %s = dist.all_reduce sum %p over @mesh [#dist.axis_ref<"data">] {dist.start = 0 : i64} : tensor<96xf32> -> tensor<96xf32>
    %a, %b = dist.unpack %s pieces 1 : (tensor<96xf32>) -> (tensor<64xf32>, tensor<32xf32>)
    ```
    Afterwards no two collectives of a block have one number, and they stand in the order of their numbers.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
}

def OverlapCollectives : Pass<"overlap-collectives", "::mlir::func::FuncOp"> {
  let summary = "starts collectives as soon as they can and waits for them right before they are needed";
  let description = [{
    A list scheduler over one engine that computes and one for each set of axes. Collectives start in the order of `dist.start`. What
    computes keeps its order, except that among the next few ops

    - one that runs goes before one that would wait for a collective;
    - what a collective takes that is soon needed goes before what can run beside it: the gradient of an input, which is summed
      over `tensor`, before that of a weight.

    Of what has buffers of its own, two are under way over the same axes: before another one starts, there is a wait for the one before
    the last. A permute, but for those of pipelines, leaves that to what can run meanwhile.

    Views, packs and copies into the form in which something travels stand right before what needs them.

    Before:
    ```mlir
    %w = graph.cluster contraction "dw" (%x, %g) : ...
    %d = graph.cluster contraction "dx" (%g, %weight) : ...
    %s = dist.all_reduce sum %d over @mesh [#dist.axis_ref<"tensor">] {dist.start = 0 : i64} : tensor<8x4xf32> -> tensor<8x4xf32>
    %n = graph.cluster row "norm" (%s) : ...
    ```
    After:
    ```mlir
    %d = graph.cluster contraction "dx" (%g, %weight) : ...
    %t = dist.all_reduce sum %d over @mesh [#dist.axis_ref<"tensor">] : tensor<8x4xf32> -> !dist.pending<tensor<8x4xf32>>
    %w = graph.cluster contraction "dw" (%x, %g) : ...
    %s = dist.wait %t : <tensor<8x4xf32>> -> tensor<8x4xf32>
    %n = graph.cluster row "norm" (%s) : ...
    ```
    Afterwards no `dist.start` is left, and a collective is blocking only where nothing could run beside it.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
}

def VerifyOverlap : Pass<"verify-overlap", "::mlir::ModuleOp"> {
  let summary = "proves that what is started is waited for once";
  let description = [{
    Every started collective has one use, a wait in its own block, and no `dist.start` is left.
  }];
}

#endif
