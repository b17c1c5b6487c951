#ifndef TESSERA_PLANNING_PASSES
#define TESSERA_PLANNING_PASSES

include "mlir/Pass/PassBase.td"

def PlanBuffers : Pass<"plan-buffers", "::mlir::ModuleOp"> {
  let summary = "assigns every tensor a buffer by liveness: functions become plan programs";
  let description = [{
    Every public function whose body is launches, loops and contiguous views becomes a
    `plan.program`. State tensors get locations in the state region, shared by all programs;
    inputs and outputs in io; everything else in the arena, where two buffers share
    bytes only if their live ranges do not overlap.

    In place wherever it is safe: a launch overwrites an operand if the kernel allows it (`reuse`,
    read_write) and the old value has no later reader; a returned state tensor is written at its own
    location (donation); a loop-carried value stays in one buffer.

    Before:
    ```mlir
    func.func @train_step(%w: tensor<8xf32> {graph.state = "w", ...}, ...)
        -> (tensor<8xf32> {graph.state = "w"}, ...) {
      %new = tile.launch @sgd(%w, %g) blocks [1] sizes [8] reuse [0, 0] : ...
    ```
    After:
    ```mlir
    plan.state "w" : memref<8xf32> parameter at 0
    plan.program @train_step arena 64 io 128 {
      %w = plan.buffer state at 0 "w" : memref<8xf32>
      plan.launch @sgd(%w, %g, %w) blocks [1] sizes [8] : ...
    ```

    Afterwards no tensor value remains outside kernels.
  }];
  let dependentDialects = ["::tessera::plan::PlanDialect"];
}

def VerifyPlan : Pass<"verify-plan", "::mlir::ModuleOp"> {
  let summary = "verifies that no two buffers that are live at once share bytes";
  let description = [{
    Checks from the IR alone: every buffer is inside its region, every step that accesses an arena
    buffer is within the buffer's live range (`lives`), buffers whose live ranges overlap are
    disjoint, programs agree on the locations of state, and no function with tensors is left.
  }];
}

#endif
