#ifndef TESSERA_PLANNING_PASSES
#define TESSERA_PLANNING_PASSES

include "mlir/Pass/PassBase.td"

def UnrollLoops : Pass<"unroll-loops", "::mlir::func::FuncOp"> {
  let summary = "writes as many trips of a loop in one as have values in flight";
  let description = [{
    A loop with `graph.in_flight` carries values from a trip to a later one than the next: in a
    pipeline, activations of the microbatches between their forward and their backward. What it
    carries moves from one place to the next in every trip. With that many trips in one, each value
    is overwritten where it is. Trips that are left are written out after the loop, as are all if
    there are not two such groups.

    Before:
    ```mlir
    %r:2 = graph.loop 8 (%i, %a = %x, %b = %y) : (...) attributes {graph.in_flight = 2 : i64} {
      %row = graph.dynamic_slice %rows[%i] : tensor<8x4xf32>, tensor<i32> -> tensor<4xf32>
      %n = tile.launch @f(%a, %row) ...
      graph.yield %b, %n : tensor<4xf32>, tensor<4xf32>
    ```
    After:
    ```mlir
    %pairs = graph.reshape %rows : tensor<8x4xf32> -> tensor<4x2x4xf32>
    %r:2 = graph.loop 4 (%i, %a = %x, %b = %y) : (...) {
      %pair = graph.dynamic_slice %pairs[%i] : tensor<4x2x4xf32>, tensor<i32> -> tensor<2x4xf32>
      %n0 = tile.launch @f(%a, %row0) ...
      %n1 = tile.launch @f(%b, %row1) ...
      graph.yield %n0, %n1 : tensor<4xf32>, tensor<4xf32>
    ```
    Afterwards no loop has the attribute. It runs last, so that all phases before have one trip.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def PlanBuffers : Pass<"plan-buffers", "::mlir::ModuleOp"> {
  let summary = "assigns every tensor a buffer by liveness: functions become plan programs";
  let description = [{
    Every public function whose body is launches, loops, contiguous views and tables of rows becomes
    a `plan.program`. State tensors get locations in the state region, shared by all programs;
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

def MarkAligned : Pass<"mark-aligned", "::mlir::ModuleOp"> {
  let summary = "tells kernels which of their buffers are aligned to 16 bytes";
  let description = [{
    A buffer that every launch of the kernel lets begin at a multiple of 16 bytes, in every
    iteration of the loops around it, gets `tile.aligned`: code for GPUs then accesses its rows 16
    bytes at a time without a test. Others keep the test. Launches of a variant are those of the
    kernel that it is of, which has no other buffers; variants are not marked.

    Before:
    ```mlir
    tile.kernel @norm(%block: index, %x: memref<4x64xf32>) ...
    %x = plan.buffer arena at 64 : memref<4x64xf32>
    plan.launch @norm(%x) blocks [4] sizes [] : memref<4x64xf32>
    ```
    After:
    ```mlir
    tile.kernel @norm(%block: index, %x: memref<4x64xf32> {tile.aligned}) ...
    ```
  }];
  let dependentDialects = ["::tessera::tile::TileDialect"];
}

def MarkUnwritten : Pass<"mark-unwritten", "::mlir::ModuleOp"> {
  let summary = "tells kernels which of their buffers none of their launches writes";
  let description = [{
    A buffer that the kernel reads, and whose bytes no launch of the kernel writes by way of another
    buffer, gets `tile.unwritten`: code for GPUs may then load from it before it stores to others. A
    result may be in the buffer of an operand, if that has no later reader. A kernel's variants get
    what it gets.

    Before:
    ```mlir
    tile.kernel @norm(%block: index, %x: memref<4x64xf32>, %y: memref<4x64xf32>) ...
    %x = plan.buffer arena at 64 : memref<4x64xf32>
    %y = plan.buffer arena at 1088 : memref<4x64xf32>
    plan.launch @norm(%x, %y) blocks [4] sizes [] : memref<4x64xf32>, memref<4x64xf32>
    ```
    After:
    ```mlir
    tile.kernel @norm(%block: index, %x: memref<4x64xf32> {tile.unwritten}, %y: memref<4x64xf32>)
    ```
  }];
  let dependentDialects = ["::tessera::tile::TileDialect"];
}

def VerifyPlan : Pass<"verify-plan", "::mlir::ModuleOp"> {
  let summary = "verifies that no two buffers that are live at once share bytes";
  let description = [{
    Checks from the IR alone: every buffer is inside its region, every step that accesses an arena
    buffer is within the buffer's live ranges (`lives`), each range but the first begins with a step
    that overwrites the buffer, buffers whose live ranges overlap are
    disjoint, arguments of launches begin at multiples of 64 bytes, programs agree on the locations
    of state, and no function with tensors is left.
  }];
}

#endif
