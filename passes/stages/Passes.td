#ifndef TESSERA_STAGES_PASSES
#define TESSERA_STAGES_PASSES

include "mlir/Pass/PassBase.td"

def AssignStages : Pass<"assign-stages", "::mlir::ModuleOp"> {
  let summary = "chooses a pipeline schedule and the stage of each block (mesh axis pipe)";
  let description = [{
    Partitions the blocks, in their order, into as many stages as the schedule has, so that the
    longest stage is as short as possible. Ops before the first block count with the first stage,
    ops after the last block with the last. Microbatches are those of the last loop of `@train_step`
    that calls blocks. Earlier loops have the same microbatches and only go forward: each gets the
    forwards of the schedule as its own, and its blocks get the stages of their layers. Blocks are
    the calls with a `graph.layer`.

    Before, on `dist.mesh @mesh [#dist.axis<"pipe" = 2>]`:
    ```mlir
    %y = call @layer(%x, %w0) {graph.layer = #graph.layer<0>}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) {graph.layer = #graph.layer<1>}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    After, in a module with `dist.schedule = "0F0,0F1,0B0,0B1\0A1F0,1B0,1F1,1B1\0A"`:
    ```mlir
    %y = call @layer(%x, %w0) {dist.forward_stage = 0 : i64, graph.layer = #graph.layer<0>}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) {dist.forward_stage = 1 : i64, graph.layer = #graph.layer<1>}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    Afterwards every block's call names its stage. Both the schedule and the stages can be edited:
    `split-stages` checks them.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
  let options = [
    Option<"schedule", "schedule", "std::string", "\"1f1b\"",
           "A pipeline schedule's name, or its CSV">,
    Option<"chunks", "chunks", "int64_t", "0",
           "Stages per rank; 0: the fewest that the schedule allows">];
}

def SplitStages : Pass<"split-stages", "::mlir::ModuleOp"> {
  let summary = "reduces a device's programs to its pipeline rank, with sends and receives";
  let description = [{
    Each loop over microbatches becomes the list of the rank's actions, in the order of its
    schedule. Actions that repeat, between warm-up and cool-down, become a loop again. Actions are
    forward and backward of a stage, or halves of backwards, and a `dist.permute` for each tensor
    that is sent to or received from a neighboring stage. Ops that depend only on inputs are
    computed wherever they are used. Between and after loops, tensors stay on their rank. Scalars
    that other ranks need, such as sums of squares of gradients, are exchanged by all-reduces over
    the axis, in which all but one rank have zeros, so that every rank computes the same numbers as
    one device. Parameters are on the rank of their block; those that several stages use are on each
    of them, with gradients added up.

    Before, for a device whose rank is 1 of 2:
    ```mlir
    %y = call @layer(%x, %w0) {dist.forward_stage = 0 : i64}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) {dist.forward_stage = 1 : i64}
        : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    After:
    ```mlir
    %zeros = graph.constant dense<0.0> : tensor<4x8xf32>
    %y = dist.permute %zeros targets [1, -1] over @mesh [#dist.axis_ref<"pipe">]
        : tensor<4x8xf32> -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    Afterwards programs have only the state of their rank, and no op names a stage. `dist.pipeline`
    of the module keeps the schedule and the FLOPs of each stage, for `tessera inspect`. Ops that
    microbatches share were emitted for each of them; `canonicalize` and `cse` merge them.
    `symbol-dce` erases blocks of other stages.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect",
                           "::mlir::func::FuncDialect"];
  let options = [Option<"device", "device", "int64_t", "0",
                        "The device whose rank the programs are for">];
}

#endif
