#ifndef TESSERA_STAGES_PASSES
#define TESSERA_STAGES_PASSES

include "mlir/Pass/PassBase.td"

def AssignStages : Pass<"assign-stages", "::mlir::ModuleOp"> {
  let summary = "on a mesh with the axis pipe: a schedule, and which stage computes which block";
  let description = [{
    Cuts the blocks into as many stages as the schedule has, in their order and such that the longest stage is as short as it can be; what
    stands before the first block counts with the first stage, what stands behind the last one with the last. Microbatches are
    those of the last loop of `@train_step` that calls blocks. Loops before that have the same microbatches and go forward alone: each gets
    the forwards of the schedule as its own, and its blocks the stages of the layers whose parameters they read.

    Before, on `dist.mesh @mesh [#dist.axis<"pipe" = 2 memory>]`:
    ```mlir
    %y = call @layer(%x, %w0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    After, in a module with `dist.schedule = "0F0,0F1,0B0,0B1\0A1F0,1B0,1F1,1B1\0A"`:
    ```mlir
    %y = call @layer(%x, %w0) {dist.forward_stage = 0 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) {dist.forward_stage = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    Afterwards every block's call names its stage. Both the table and the stages can be edited: `split-stages` checks them.
  }];
  let dependentDialects = ["::tessera::dist::DistDialect"];
  let options = [
    Option<"schedule", "schedule", "std::string", "\"1f1b\"", "A schedule's name, or a table of it">,
    Option<"chunks", "chunks", "int64_t", "0", "Stages of a rank; 0: the least that the schedule has">];
}

def SplitStages : Pass<"split-stages", "::mlir::ModuleOp"> {
  let summary = "keeps of one device's programs what its rank of the pipeline does, and sends what the others need";
  let description = [{
    Each loop over microbatches becomes the list of the rank's actions, in the order of its schedule: forward and backward of a
    stage, or halves of backwards, and a `dist.permute` for each tensor that goes to or comes from the stage beside. What depends on inputs alone is
    computed wherever it is used. Between and behind loops, tensors stay where they are; scalars that others need, such as squares of
    gradients, are exchanged by all-reduces over the axis, in which all but one rank have zeros, so that every
    rank computes the same numbers as one device. Parameters live where their block is, those that several stages use on each
    of them, with gradients added up.

    Before, for a device whose rank is 1 of 2:
    ```mlir
    %y = call @layer(%x, %w0) {dist.forward_stage = 0 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) {dist.forward_stage = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    After:
    ```mlir
    %zeros = graph.constant dense<0.0> : tensor<4x8xf32>
    %y = dist.permute %zeros targets [1, -1] over @mesh [#dist.axis_ref<"pipe">] : tensor<4x8xf32> -> tensor<4x8xf32>
    %z = call @layer(%y, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    Afterwards programs have the state of their rank alone, and no stage is named any more; `dist.pipeline` of the module keeps the table,
    and the FLOPs of each stage, for whoever wants to see it. What microbatches share was made for
    each of them, and is then made once: `canonicalize` and `cse` run where there was anything to split.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect", "::mlir::func::FuncDialect"];
  let options = [Option<"device", "device", "int64_t", "0", "The device whose part the programs become">];
}

#endif
