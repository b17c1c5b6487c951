#ifndef TESSERA_PLANNING_PASSES
#define TESSERA_PLANNING_PASSES

include "mlir/Pass/PassBase.td"

def PlanBuffers : Pass<"plan-buffers", "::mlir::ModuleOp"> {
  let summary = "gives every tensor bytes: step functions become plan programs";
  let description = [{
    Every public function whose body is launches, loops and contiguous views becomes a
    `plan.program`. State tensors get locations in the state region, shared by all programs;
    inputs and outputs in io; everything else in the arena, where two buffers share
    bytes only if no step needs both.

    In place wherever it is safe: a launch writes over an operand when the kernel allows it
    (`reuse`, read_write) and nobody reads the old value later; a returned state tensor is
    written where it lives (donation); a loop-carried value stays in one buffer.

    Before:
    ```mlir
    func.func @train_step(%w: tensor<8xf32> {graph.state = "w", ...}, ...) -> (tensor<8xf32> {graph.state = "w"}, ...) {
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
  let summary = "proves that no two buffers that live at once share bytes";
  let description = [{
    Recomputes from the text alone: every buffer lies inside its region, every step that
    touches an arena buffer lies within the buffer's `lives`, buffers whose lives
    overlap are disjoint, programs agree on the locations of state, and no function with
    tensors is left.
  }];
}

#endif
